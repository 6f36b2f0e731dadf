package semaphore

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/keeper"
)

// ErrLeaseLost is the cause of the end of a lost Lease's context. A lease is lost if it could not
// be renewed in time, Redis no longer knows it, Config.MaxHold is over, or it was evicted.
// Another holder may have the slot.
var ErrLeaseLost = keeper.ErrLost

// Lease is a slot of a Semaphore, held until it is released or lost, and renewed in the background.
// Its methods are safe for concurrent use, and may be called on nil.
type Lease struct {
	semaphore *Semaphore
	ctx       context.Context
	cancel    context.CancelCauseFunc
	holding   *keeper.Holding
	paid      *core.Reservation
	since     time.Time
	gone      atomic.Bool // released or detached
}

func (s *Semaphore) newLease(ctx context.Context, h *keeper.Holding) *Lease {
	l := &Lease{semaphore: s, holding: h, since: time.Now()}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	h.OnLoss(l.cancel)
	return l
}

// Context returns a context that ends with the context of the Acquire, when the lease is released,
// and when it is lost. The cause of a loss is ErrLeaseLost; see context.Cause. If core.Gate.Close
// gave up waiting for the holder, the cause is core.ErrClosed. For a nil Lease it is
// context.Background, which never ends.
func (l *Lease) Context() context.Context {
	if l == nil {
		return context.Background()
	}
	return l.ctx
}

// ID returns the Request.ID of the lease, or the Holder.ID of one that has none. That of a nil Lease is
// empty.
func (l *Lease) ID() string {
	if l == nil {
		return ""
	}
	return cmp.Or(ownID(l.holding.ID), l.holding.ID)
}

// Token returns the fencing token of the lease. Tokens rise from grant to grant of an outermost
// key: across a failover unless the new primary's clock is behind, and when Redis's clock steps
// back unless the key was idle for five minutes before and the step is longer. A resource that is
// protected by a limit of 1 can reject a token below the last one it saw. The token is 0 if Redis
// did not decide.
func (l *Lease) Token() int64 {
	if l == nil {
		return 0
	}
	return l.holding.Token()
}

// Lost returns a channel that is closed when the lease is lost. For a nil Lease it is nil.
func (l *Lease) Lost() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.holding.Gone()
}

// InUse returns how much of the innermost limit was in use right after the grant, this lease
// included. It is 0 if nobody counted.
func (l *Lease) InUse() int64 {
	if l == nil {
		return 0
	}
	return l.holding.InUse()
}

// Reservation returns what Semaphore.Admit spent with the slot, to settle or cancel. It is nil after
// Acquire.
func (l *Lease) Reservation() *core.Reservation {
	if l == nil {
		return nil
	}
	return l.paid
}

// Extend renews the lease now. Leases are renewed without it: call it before an irreversible step
// to confirm that the lease is still held. After nil the lease is held for Config.TTL from the
// call, or until MaxHold is over. The error is ErrLeaseLost if the lease is lost, released or
// detached.
func (l *Lease) Extend(ctx context.Context) error {
	if l == nil {
		return nil
	}
	if l.gone.Load() {
		return ErrLeaseLost
	}
	return l.semaphore.slots.extend(ctx, l)
}

func (s made) extend(ctx context.Context, l *Lease) error {
	return s.hub.Keeper.Extend(ctx, l.holding)
}

// Release gives the slot back. It runs to its end even if ctx is cancelled, for about
// core.Config.Timeout, in overload for up to a second. If it fails, it is sent again in the background
// until Redis answers, for eight TTLs at most. Later calls do nothing.
func (l *Lease) Release(ctx context.Context) error {
	if l == nil || l.gone.Swap(true) {
		return nil
	}
	return l.semaphore.slots.release(ctx, l)
}

func (s made) release(ctx context.Context, l *Lease) error {
	l.cancel(context.Canceled)
	start := time.Now()
	held := start.Sub(l.since)
	s.holds.Add(held)
	err := s.hub.Keeper.Release(context.WithoutCancel(ctx), l.holding)
	s.tell(ctx, LeaseEvent{
		Kind: LeaseReleased, Err: err, Held: held, Took: time.Since(start),
	})
	return err
}

// Detach moves the slot to work that outlives this lease's context. The new Lease has the values of
// that context and does not end with it. Releasing the old lease does nothing then. Detach returns
// nil if the lease was released or detached before.
func (l *Lease) Detach() *Lease {
	if l == nil || l.gone.Swap(true) {
		return nil
	}
	d := l.semaphore.newLease(context.WithoutCancel(l.ctx), l.holding)
	d.paid, d.since = l.paid, l.since
	return d
}
