package admin

import (
	"fmt"
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

// ops are the words of each operation: its name, those of the button that undoes another by it, and what
// an operator has done, of the units and the name of what was changed.
var ops = [...]struct{ name, undo, done string }{
	{name: "none"},
	OpReset:       {"reset", "", "forgot what was spent of %[2]s"},
	OpGive:        {"give", "give it back", "gave %s of %s back"},
	OpTake:        {"take", "charge it again", "charged %s of %s"},
	OpRaise:       {"raise", "raise it again", "raised the limit by %s under %s"},
	OpEndRaise:    {"end raise", "end the raise", "ended a raise by %s under %s"},
	OpBlock:       {"block", "block it again", "blocked under %[2]s"},
	OpUnblock:     {"unblock", "unblock", "unblocked under %[2]s"},
	OpEvict:       {"evict", "", "evicted a holder of %[2]s"},
	OpOverride:    {"override", "set the override before", "set the override of %[2]s"},
	OpEndOverride: {"end override", "remove the override", "removed the override of %[2]s"},
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

// summary says in words what was done.
func (e *Event) summary() string {
	what := e.Slots + e.Tenant // one of them at most is there
	if e.Policy != nil {
		what = e.Policy.Name()
	}
	return fmt.Sprintf(ops[e.Op].done, inspect.Number(e.Units), what)
}
