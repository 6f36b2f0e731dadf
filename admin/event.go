package admin

import (
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/inspect"
)

// Op is what an operator does by the page.
type Op uint8

// The operations.
const (
	// OpReset forgets what a key has spent under a policy.
	OpReset Op = iota + 1
	// OpGive gives units back, and OpTake takes them again.
	OpGive
	OpTake
	// OpRaise raises the limit of a key until a time, and OpEndRaise ends that.
	OpRaise
	OpEndRaise
	// OpBlock and OpUnblock are those of a core.Block.
	OpBlock
	OpUnblock
	// OpEvict takes the slot of a holder away.
	OpEvict
	// OpOverride sets the override of a tenant, and OpEndOverride removes it.
	OpOverride
	OpEndOverride
)

// operation is what the page knows of an Op. Its texts have places, such as {at}, for what stands in an
// order; see Event.words.
type operation struct {
	name     string // in forms
	verb     string // of the button that confirms it
	question string // that the button answers; empty if nobody is asked
	note     string // beside the question
	result   string // what was done, for the operator
	nothing  string // why nothing has changed, if nothing was there to change
	reverse  Op     // undoes it, or 0
	undo     string // of the button that undoes another one by it
}

var ops = [...]operation{
	{name: "none"},
	OpReset: {
		name: "reset", verb: "Reset", question: "Forget what {at} has spent under {policy}?",
		result:  "{at} has spent nothing under {policy}.",
		reverse: OpTake,
	},
	OpGive: {
		name: "give", verb: "Give {n} back", question: "Give {at} {n} {unit} of {policy} back?",
		note:    "At most what is used comes back.",
		reverse: OpTake, undo: "give it back",
	},
	OpTake: {
		name: "take", verb: "Charge {n}", question: "Charge {at} {n} {unit} of {policy}?",
		reverse: OpGive, undo: "charge it again",
	},
	OpRaise: {
		name: "raise", verb: "Raise by {n}",
		question: "Raise the limit of {at} under {policy} by {n} {unit} until {until}?",
		result:   "The limit of {at} under {policy} is raised by {n} until {until}.",
		nothing:  "this was done before",
		reverse:  OpEndRaise, undo: "raise it again",
	},
	OpEndRaise: {
		name: "end raise", result: "The raise of {at} under {policy} by {n} has ended.",
		nothing: "this was done before",
		reverse: OpRaise, undo: "end the raise",
	},
	OpBlock: {
		name: "block", verb: "Block", question: "Block {at} under {policy} until {until}?",
		note: "It forgets the strikes of the key.", result: "{at} is blocked under {policy} until {until}.",
		reverse: OpUnblock, undo: "block it again",
	},
	OpUnblock: {
		name: "unblock", verb: "Unblock", question: "Unblock {at} under {policy}?",
		note: "It forgives: the next block is as short as the first. Other processes remember a " +
			"block for up to a second.",
		result: "{at} is not blocked under {policy}.", nothing: "the key was not blocked any more",
		reverse: OpBlock, undo: "unblock",
	},
	OpEvict: {
		name: "evict", verb: "Evict", question: "Take the slot of {at} at {slots} away?",
		result:  "The slot of {at} at {slots} was taken away.",
		nothing: "the holder has left: nobody had that slot any more",
	},
	OpOverride: {
		name: "override", verb: "Set the override", question: "Set this override of {tenant}?",
		result:  "The override of {tenant} is set. Every process obeys it within a second.",
		reverse: OpEndOverride, undo: "set the override before",
	},
	OpEndOverride: {
		name: "end override", verb: "Remove the override", question: "Remove the override of {tenant}?",
		note:   "What was spent stays counted: keys may have used more than their limits then.",
		result: "{tenant} has no override.", nothing: "the tenant had no override any more",
		reverse: OpOverride, undo: "remove the override",
	},
}

// String returns the operation in lower-case words.
func (o Op) String() string {
	if int(o) < len(ops) {
		return ops[o].name
	}
	return "unknown"
}

// opOf returns the operation of a name, or 0.
func opOf(name string) Op {
	for o := OpReset; int(o) < len(ops); o++ {
		if o.String() == name {
			return o
		}
	}
	return 0
}

// Event is what an operator has done, or has tried to do, by the page. Config.Observe receives a
// pointer to it. It is a core.Event.
type Event struct {
	Operator string // as Config.Write named it
	Op       Op
	Key      core.Key     // zero for an override
	Policy   *core.Policy // of all but an eviction and an override
	Units    int64        // that have come back, were taken, or by which the limit is raised
	Until    time.Time    // when a raise, a block or an override ends, or zero
	Slots    string       // the name of the semaphore of an eviction
	Holder   string       // the id of the evicted holder
	Tenant   string       // of an override
	Override string       // in the form of a file
	Err      error        // why nothing has changed, or it is unknown whether it has
}

// EventName returns "operator" and the operation.
func (e *Event) EventName() string { return "operator " + e.Op.String() }

// words fills in the places of a text. {at} is what the page calls the key.
func (e *Event) words(text, at string) string {
	var policy, unit string
	if e.Policy != nil {
		policy, unit = e.Policy.Name(), e.Policy.Unit().String()
	}
	return strings.NewReplacer("{at}", at, "{policy}", policy, "{unit}", unit, "{n}", inspect.Number(e.Units),
		"{until}", stamp(e.Until).Human, "{slots}", e.Slots, "{tenant}", e.Tenant).Replace(text)
}
