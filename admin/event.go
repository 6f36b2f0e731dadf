package admin

import (
	"time"

	"github.com/headgate/headgate/core"
)

// Action is what an operator does by the page.
type Action uint8

// The actions.
const (
	// ActionReset forgets what a key has spent under a policy.
	ActionReset Action = iota + 1
	// ActionGive gives units back, and ActionTake takes them again.
	ActionGive
	ActionTake
	// ActionRaise raises the limit of a key until a time, and ActionEndRaise ends that.
	ActionRaise
	ActionEndRaise
	// ActionBlock and ActionUnblock are those of a core.Block.
	ActionBlock
	ActionUnblock
	// ActionEvict takes the slot of a holder away.
	ActionEvict
	// ActionOverride sets the override of a tenant, and ActionEndOverride removes it.
	ActionOverride
	ActionEndOverride
)

var actions = [...]string{
	"none", "reset", "give", "take", "raise", "end raise", "block", "unblock", "evict", "override",
	"end override",
}

// String returns the action in lower-case words.
func (a Action) String() string {
	if int(a) < len(actions) {
		return actions[a]
	}
	return "unknown"
}

// actionOf returns the action of a name, or 0.
func actionOf(name string) Action {
	for a := ActionReset; int(a) < len(actions); a++ {
		if actions[a] == name {
			return a
		}
	}
	return 0
}

// Event is what an operator has done, or has tried to do, by the page. Config.Observe receives a
// pointer to it. It is a core.Event.
type Event struct {
	Operator string // as Config.Write named it
	Action   Action
	Key      core.Key     // zero for an override
	Policy   *core.Policy // of all but an eviction and an override
	Units    int64        // that were given, taken, or by which the limit is raised
	Until    time.Time    // when a raise, a block or an override ends, or zero
	Slots    string       // the name of the semaphore of an eviction
	Holder   string       // the id of the evicted holder
	Tenant   string       // of an override
	Override string       // in the form of a file
	Err      error        // why nothing has changed, or it is unknown whether it has
}

// EventName returns "operator" and the action.
func (e *Event) EventName() string { return "operator " + e.Action.String() }
