package core

import (
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/keeper"
)

// ErrLeaseLost is the cause with which a Lease's context is cancelled: it could not be renewed in time, Redis no longer knows
// it, its longest hold is over, or it was evicted. Another may hold the slot.
var ErrLeaseLost = errors.New("core: the lease is lost")

// Lease is a slot of a Semaphore, held until it is released or lost. It is renewed in the background. All methods
// may be called on nil, and are safe for concurrent use.
type Lease struct {
	gate    *Gate
	ctx     context.Context
	cancel  context.CancelCauseFunc
	holding *keeper.Holding
	paid    *Reservation
	gone    atomic.Bool // released, or detached
}

func (g *Gate) newLease(ctx context.Context, h *keeper.Holding) *Lease {
	l := &Lease{gate: g, holding: h}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	h.OnLoss(l.cancel)
	return l
}

// Context ends with the context that the lease was acquired with, when it is released, and with the cause ErrLeaseLost
// when it is lost. It is the background context of a nil Lease.
func (l *Lease) Context() context.Context {
	if l == nil {
		return context.Background()
	}
	return l.ctx
}

// Token rises from grant to grant of an outermost key, also where all else has expired, and across a failover while the new
// primary's clock is not behind. What is protected by a semaphore of limit 1 can refuse a token lower than the last. It
// is 0 where Redis did not decide.
func (l *Lease) Token() int64 {
	if l == nil {
		return 0
	}
	return l.holding.Token()
}

// Lost is closed when the lease is lost, whatever SemaphoreConfig.OnLoss says. It is nil of a nil Lease.
func (l *Lease) Lost() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.holding.Gone()
}

// InUse is how much of the innermost limit was in use right after the grant, this lease included; 0 where nobody counted.
func (l *Lease) InUse() int64 {
	if l == nil {
		return 0
	}
	return l.holding.InUse()
}

// Reservation is what was spent with the slot, by Semaphore.Admit or TryAdmit, to be settled or cancelled; else nil.
func (l *Lease) Reservation() *Reservation {
	if l == nil {
		return nil
	}
	return l.paid
}

// Extend renews the lease now, and so says whether it is held: after nil it is for SemaphoreConfig.TTL from the call, less
// where the longest hold ends. Leases are renewed without it: it is for a last look before what must not be done
// twice. Of a lease that is lost, released or detached the error is ErrLeaseLost.
func (l *Lease) Extend(ctx context.Context) error {
	if l == nil {
		return nil
	}
	if l.gone.Load() {
		return ErrLeaseLost
	}
	return l.gate.keeper.Extend(ctx, l.holding)
}

// Release gives the slot up. Later calls do nothing. It goes on where ctx was cancelled, for at most Config.Timeout. If it
// fails, the slot is free when the lease ends.
func (l *Lease) Release(ctx context.Context) error {
	if l == nil || l.gone.Swap(true) {
		return nil
	}
	l.cancel(context.Canceled)
	start := l.gate.start()
	err := l.gate.keeper.Release(context.WithoutCancel(ctx), l.holding)
	semaphore, _ := l.holding.Owner.(*Semaphore)
	l.gate.tell(ctx, Event{Kind: EventRelease, Semaphore: semaphore, Err: err, Took: time.Since(start)})
	return err
}

// Detach moves the slot to work that outlives this lease's context: the Lease returned has the values of that context but
// does not end with it. Releasing this one does nothing then. It returns nil if the lease was released or detached
// before.
func (l *Lease) Detach() *Lease {
	if l == nil || l.gone.Swap(true) {
		return nil
	}
	d := l.gate.newLease(context.WithoutCancel(l.ctx), l.holding)
	d.paid = l.paid
	return d
}

func newID() string { return rand.Text() }
