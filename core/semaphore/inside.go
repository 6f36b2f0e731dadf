package semaphore

import (
	"context"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/lease"
)

// inCore has what package core keeps for other packages of this module.
var inCore = core.Inside(hub.Pass{})

// Inside is for the other packages of this module, which alone can make a hub.Pass.
func Inside(hub.Pass) inside { return inside{} }

// inside has the methods that other packages of this module call.
type inside struct{}

// Admit is Semaphore.Admit, but keeps the charges, and leaves the Decision in d, which is zero before.
// A Decision is large: with copies of it in the frames of several functions, a request does not fit in
// a stack of 8 KiB.
func (inside) Admit(
	ctx context.Context, s *Semaphore, r Request, d *core.Decision, charges []core.Charge,
) (*Lease, error) {
	return s.slots.admit(ctx, r, d, charges)
}

// Entries returns the holders and the waiters of a semaphore below the outermost part of a key, and
// the time of the store.
func (inside) Entries(
	ctx context.Context, s *Semaphore, key core.Key,
) (now int64, entries []lease.Entry, err error) {
	return s.slots.entries(ctx, key)
}
