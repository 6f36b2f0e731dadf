package semaphore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/keeper"
	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/request"
)

// Acquire takes a slot, and waits for one if there is none and Request.MaxWait allows it. It
// returns a *FullError if the queue is full or MaxWait is over, and wraps the error of ctx if that
// ends. The Lease is nil on error. Acquire does not overtake waiters, whether it waits or not.
//
// Callers wait in a FIFO queue for each innermost key, so a caller that waits at a user's cap
// delays no other user of the tenant. Room at an outer key goes to the key below it that has used
// the fewest slot-seconds, divided by its Share; see Cap. A caller whose inner caps are full is
// passed over. Callers with a context of core.WithBackground come behind all others until half of their
// time is over, which is MaxWait or what is left to the deadline of ctx.
func (s *Semaphore) Acquire(ctx context.Context, r Request) (*Lease, error) {
	return s.slots.acquire(ctx, r)
}

func (s made) acquire(ctx context.Context, r Request) (*Lease, error) {
	if err := s.hub.Keeper.Begin(); err != nil {
		return nil, err
	}
	defer s.hub.Keeper.End()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("semaphore: %w", err)
	}
	o, err := s.order(&r)
	if err != nil {
		return nil, err
	}
	return o.take(ctx, nil)
}

// take takes a slot, from the store or as OnFailure says. A cause is why the store has failed already.
func (o *order) take(ctx context.Context, cause error) (l *Lease, err error) {
	for {
		source := core.SourceNone // of a failure mode
		if err = cause; err == nil {
			l, err = o.ask(ctx, o.hub.Leases, o.wanted)
		}
		if err != nil && !o.inMemory() && outage(ctx, err) {
			cause = err
			l, source, err = o.fail(ctx, err)
		}
		if !errors.Is(err, errBack) {
			return o.observe(ctx, l, source, err, cause)
		}
		cause, o.wanted.ID = nil, newID(lease.Name(o.wanted.ID)) // Redis may have granted the other
	}
}

// fail lets the failure mode decide.
func (o *order) fail(ctx context.Context, cause error) (*Lease, core.Source, error) {
	overloaded := errors.Is(cause, core.ErrOverloaded)
	switch {
	case o.cfg.OnFailure == core.FailOpen:
		return o.hold(ctx, o.holding(o.wanted, "", nil)), core.SourceOpen, nil
	case o.cfg.OnFailure == core.FailLocal && !overloaded:
		o.hub.Keeper.CountIn(ctx, o.hub.LocalLeases, o.cfg.Name, o.part)
		q := o.part(o.wanted)
		q.ID = newID(lease.Name(q.ID)) // Redis may have granted the other
		l, err := o.ask(ctx, o.hub.LocalLeases, q)
		return l, core.SourceLocal, err
	case overloaded:
		return nil, core.SourceOverload, cause
	}
	return nil, core.SourceClosed, cause
}

// part returns the part of a request that this process grants alone.
func (s *Semaphore) part(q lease.Request) lease.Request {
	q.Levels = slices.Clone(q.Levels)
	replicas := int64(s.hub.Replicas)
	for i := range q.Levels {
		l := &q.Levels[i]
		l.Limit = max(1, l.Limit/replicas)
		l.Weight, l.Floor = min(l.Weight, l.Limit), l.Floor/replicas
	}
	return q
}

// outage reports whether an error is Redis's and not the caller's.
func outage(ctx context.Context, err error) bool {
	return !errors.Is(err, ErrFull) && !errors.Is(err, core.ErrClosed) &&
		!errors.Is(err, core.ErrMisconfigured) && !errors.Is(err, ErrLeaseLost) &&
		deadline.Err(ctx) == nil
}

// observe tells the observer what came of the order. Where a failure mode decided, it says which, and why the
// store did not. It returns the lease and the error.
func (o *order) observe(
	ctx context.Context, l *Lease, source core.Source, err, cause error,
) (*Lease, error) {
	if o.hub.Observe == nil {
		return l, err
	}
	over := false
	defer func() {
		if !over { // Observe panics, so that nobody gets the lease and releases it
			_ = l.Release(ctx) // on failure the lease ends
		}
	}()
	e := &AcquireEvent{
		Semaphore: o.Semaphore, Key: o.request.innermost(), Source: cmp.Or(source, o.source()), Waited: o.waited,
		Err: err, Took: time.Since(o.start),
	}
	switch {
	case errors.As(err, &e.Full):
		e.Err = nil
	case err != nil && source != core.SourceClosed && source != core.SourceOverload:
		e.Source = core.SourceNone
	}
	if e.Err == nil {
		e.Err = cause
	}
	o.hub.Observe(ctx, e)
	over = true
	return l, err
}

// granted returns the lease of a grant that was asked for at sent.
func (s *Semaphore) granted(
	ctx context.Context, store request.LeaseStore, scope string, q lease.Request, g lease.Grant,
	sent time.Time,
) *Lease {
	h := s.holding(q, scope, store)
	h.Granted(lease.Message{Token: g.Token, Left: g.Left, Used: g.Used[len(q.Levels)-1]}, sent)
	return s.hold(ctx, h)
}

// hold lets the keeper look after a lease from now on.
func (s *Semaphore) hold(ctx context.Context, h *keeper.Holding) *Lease {
	s.hub.Keeper.Hold(h)
	return s.newLease(ctx, h)
}

func (s *Semaphore) holding(
	q lease.Request, scope string, store request.LeaseStore,
) *keeper.Holding {
	q.Waiters = 0
	spec := keeper.Spec{
		Name: s.cfg.Name, ID: q.ID, Scope: scope, TTL: s.cfg.TTL, Store: store, Fenced: store == s.hub.Leases,
		Adopt: s.cfg.OnLoss == LossAdopt && lease.Name(q.ID) == "", Request: q, Notify: s.notify,
	}
	if s.cfg.MaxHold > 0 {
		spec.Ends = time.Now().Add(s.cfg.MaxHold)
	}
	return keeper.NewHolding(spec)
}
