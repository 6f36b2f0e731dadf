package admin

import (
	"time"

	"github.com/headgate/headgate/core"
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

var ops = [...]string{
	"none", "reset", "give", "take", "raise", "end raise", "block", "unblock", "evict", "override",
	"end override",
}

// String returns the operation in lower-case words.
func (o Op) String() string {
	if int(o) < len(ops) {
		return ops[o]
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
