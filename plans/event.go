package plans

import "github.com/headgate/headgate/internal/enum"

// Op is what an Event reports.
type Op uint8

// The operations.
const (
	// OpReload is a new Set, which holds now. If there is an Err, the file is bad, and the Set
	// before still holds.
	OpReload Op = iota + 1
	// OpResolve is a Resolve that failed, or named an unknown plan.
	OpResolve
	// OpFollow is told once when Redis begins to tell nothing of changes, with an Err, and once when
	// it does again.
	OpFollow
	// OpOverride is an override that cannot be read, or names an unknown plan.
	OpOverride
)

var ops = []string{"none", "reload", "resolve", "follow", "override"}

// String returns the operation in lower-case words.
func (o Op) String() string { return enum.Name(ops, int(o)) }

// Event is what happened in a Book. Config.Observe receives a pointer to it, which is valid until
// it returns.
type Event struct {
	Op     Op
	Tenant string // of an OpResolve and an OpOverride
	Err    error
}

// EventName returns the name of the operation.
func (e *Event) EventName() string { return e.Op.String() }
