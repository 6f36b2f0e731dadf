package admin

import (
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/inspect"
)

// Op is what an operator does by the page.
type Op uint8

// The operations.
const (
	// OpReset forgets what a key has spent under a policy.
	OpReset = Op(inspect.OpReset)
	// OpGive gives units back, and OpTake takes them again.
	OpGive = Op(inspect.OpGive)
	OpTake = Op(inspect.OpTake)
	// OpRaise raises the limit of a key until a time, and OpEndRaise ends that.
	OpRaise    = Op(inspect.OpRaise)
	OpEndRaise = Op(inspect.OpEndRaise)
	// OpBlock and OpUnblock are those of a core.Block.
	OpBlock   = Op(inspect.OpBlock)
	OpUnblock = Op(inspect.OpUnblock)
	// OpEvict takes the slot of a holder away.
	OpEvict = Op(inspect.OpEvict)
	// OpOverride sets the override of a tenant, and OpEndOverride removes it.
	OpOverride    = Op(inspect.OpOverride)
	OpEndOverride = Op(inspect.OpEndOverride)
)

// String returns the operation in lower-case words.
func (o Op) String() string {
	if int(o) < len(inspect.Operations) {
		return inspect.Operations[o].Name
	}
	return "unknown"
}

// Event is what an operator has done, or has tried to do, by the page. Config.Observe receives a
// pointer to it. It is a core.Event.
type Event struct {
	Operator string // as Config.Write named it
	Op       Op
	Key      core.Key     // zero for an override
	Policy   *core.Policy // of all but an eviction and an override
	Units    int64        // that came back, were charged or raise the limit; or slots taken away
	Until    time.Time    // when a raise, a block or an override ends, or zero
	Slots    string       // the name of the semaphore of an eviction
	Holder   string       // the id of the evicted holder
	Tenant   string       // of an override
	Override string       // in the form of a file
	Err      error        // why nothing has changed, or it is unknown whether it has
}

// EventName returns "operator" and the operation.
func (e *Event) EventName() string { return "operator " + e.Op.String() }
