package semaphore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/keeper"
	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/request"
)

// attempt is an order at one store, until that grants or rejects it. The store may be asked several
// times, with the same id.
type attempt struct {
	*order
	store request.LeaseStore
	lease lease.Request

	waiter   *keeper.Waiter
	over     <-chan time.Time // MaxWait is over
	half     time.Time        // until when the caller waits in the background
	position int64            // in the queue, or -1
	asked    time.Time        // when the store was asked last

	known bool // the store may have the id: it waits, or its slot may be granted
}

// errBack ends the wait for a local slot, because Redis answers again.
var errBack = errors.New("semaphore: redis is back")

// ask asks a store until it grants or rejects.
func (o *order) ask(ctx context.Context, store request.LeaseStore, q lease.Request) (*Lease, error) {
	k, longest := o.hub.Keeper, o.request.MaxWait
	a := &attempt{order: o, store: store, lease: q, waiter: new(keeper.Waiter), position: -1}
	if q.Waiters > 0 {
		a.lease.Background, a.half = core.IsBackground(ctx), halfOf(ctx, longest, o.start)
		if longest != Forever {
			timer := time.NewTimer(longest - time.Since(o.start))
			defer timer.Stop()
			a.over = timer.C
		}
		// A caller that may wait listens before it asks, or is woken to ask again once the process
		// listens, so that no grant is missed.
		a.waiter = k.Wait(o.cfg.Name, q.ID)
		defer k.Leave(q.ID)
	}
	defer a.leave() // OnQueue may panic
	for {
		if q.Waiters > 0 && !a.fallsBack() {
			if err := a.settle(ctx); err != nil {
				return nil, err
			}
		}
		grant, err := a.ask(ctx)
		if err != nil {
			return nil, err
		}
		if grant.Status == lease.Held {
			return o.granted(ctx, store, o.scope, q, grant, a.asked), nil
		}
		if l, err := a.wait(ctx, grant); l != nil || err != nil {
			return l, err
		}
	}
}

// settle waits while callers leave the server to the holders, but not for longer than MaxWait.
func (a *attempt) settle(ctx context.Context) error {
	wait, left := a.hub.Keeper.Settles(ctx, a.outermost), a.request.MaxWait-time.Since(a.start)
	if wait <= 0 {
		return nil
	}
	a.waited = true
	err := a.hub.Keeper.Sleep(ctx, min(wait, left))
	if err == nil && wait > left {
		return a.full(a.lease, lease.Grant{Status: lease.Waiting, Used: make([]int64, len(a.lease.Levels))})
	}
	return err
}

// halfOf returns when half of a wait that began at start is over.
func halfOf(ctx context.Context, longest time.Duration, start time.Time) time.Time {
	if at, ok := ctx.Deadline(); ok {
		longest = min(longest, at.Sub(start))
	}
	return start.Add(longest / 2)
}

// ask asks the store once. The grant holds or waits.
func (a *attempt) ask(ctx context.Context) (lease.Grant, error) {
	if a.lease.Background && !time.Now().Before(a.half) {
		a.lease.Background = false
	}
	before := a.known
	a.asked, a.known = time.Now(), true
	grant, err := a.store.Acquire(ctx, a.scope, a.lease)
	for err == nil && grant.Late() {
		grant, err = a.store.Acquire(ctx, a.scope, a.lease)
	}
	if err != nil {
		a.known = before || !errors.As(err, new(request.Unsent))
		return grant, err
	}
	a.known = grant.Status == lease.Waiting
	switch grant.Status {
	case lease.Full, lease.QueueFull:
		return grant, a.full(a.lease, grant)
	case lease.Evicted:
		return grant, ErrLeaseLost
	case lease.Waiting:
		a.waited = true
		a.waiter.Queues()
		if onQueue := a.request.OnQueue; onQueue != nil && grant.Position != a.position {
			onQueue(int(grant.Position))
		}
		a.position = grant.Position
	}
	return grant, nil
}

// wait waits until the slot is granted, which returns a lease, or until it is time to ask again,
// which returns nil, or for neither, which returns an error.
func (a *attempt) wait(ctx context.Context, grant lease.Grant) (*Lease, error) {
	patience := a.patience(grant)
	if a.fallsBack() {
		patience = min(patience, breaker.Pause)
	}
	if a.lease.Background {
		patience = min(patience, max(0, time.Until(a.half)))
	}
	poll := time.NewTimer(patience)
	defer poll.Stop()
	select {
	case <-a.waiter.Woken:
		return a.woken(ctx, grant)
	case <-poll.C:
		if a.outlasted(ctx) {
			return nil, errBack
		}
		return nil, nil
	case <-a.over:
		return nil, a.full(a.lease, grant)
	case <-ctx.Done():
		return nil, fmt.Errorf("semaphore: %w", ctx.Err())
	}
}

// fallsBack reports whether this process grants the slot while Redis fails.
func (a *attempt) fallsBack() bool {
	return !a.inMemory() && a.store == a.hub.LocalLeases
}

// outlasted reports whether Redis answers again while the caller waits for a slot of this process.
func (a *attempt) outlasted(ctx context.Context) bool {
	return a.fallsBack() && a.hub.Keeper.Asks(ctx, a.outermost)
}

// woken returns the lease that the caller was woken for, or nil if it is to ask again.
func (a *attempt) woken(ctx context.Context, grant lease.Grant) (*Lease, error) {
	m, closing := a.hub.Keeper.Heard(a.waiter)
	if closing {
		return nil, core.ErrClosed
	}
	if a.outlasted(ctx) { // what this process grants now may be another's in Redis
		return nil, errBack
	}
	if ctx.Err() != nil { // both at once
		return nil, fmt.Errorf("semaphore: %w", ctx.Err())
	}
	if m.Token <= grant.Token { // the grant is older than the question
		return nil, nil
	}
	h := a.holding(a.lease, a.scope, a.store)
	h.Granted(m, a.asked)
	// Near the end of the lease, the caller may as well ask.
	if time.Until(h.Until()) <= time.Duration(m.Left)*time.Microsecond/8 {
		return nil, nil
	}
	a.known = false
	return a.hold(ctx, h), nil
}

// leave releases a slot that the caller may have and does not know of.
func (a *attempt) leave() {
	if a.known {
		a.hub.Keeper.Abandon(a.store, a.scope, a.lease.ID, a.cfg.TTL)
	}
}

// patience returns when to ask again without a wake-up. The first in the queue asks when the first
// lease ends, in case its holder has died. All others ask now and then, in case a message was lost,
// and well before a grant's first lease ends.
func (s *Semaphore) patience(g lease.Grant) time.Duration {
	wait := keeper.Jitter(min(s.cfg.TTL/3, lease.Claim*time.Microsecond*3/5))
	next := time.Duration(g.Next) * time.Microsecond
	if g.Position == 0 && g.Next >= 0 && next < wait {
		wait = next + time.Millisecond
	}
	return max(wait, 10*time.Millisecond)
}
