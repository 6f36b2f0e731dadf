package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/keeper"
	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/request"
)

func (s *Semaphore) acquire(ctx context.Context, ask SlotRequest, waiters int64) (*Lease, error) {
	if err := s.gate.keeper.Begin(); err != nil {
		return nil, err
	}
	defer s.gate.keeper.End()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("core: %w", err)
	}
	q, err := s.request(ask, waiters)
	if err != nil {
		return nil, err
	}
	return s.take(ctx, ask, q, nil)
}

// errBack ends the wait for a local slot, because Redis answers again.
var errBack = errors.New("core: redis is back")

// take takes a slot, from the store or as OnFailure says. A cause is why the store has failed
// already.
func (s *Semaphore) take(
	ctx context.Context,
	ask SlotRequest,
	q lease.Request,
	cause error,
) (l *Lease, err error) {
	for start := time.Now(); ; {
		source := s.gate.source
		if err = cause; err == nil {
			l, err = s.ask(ctx, s.gate.leases, ask, q, start)
		}
		if err != nil && s.gate.leases != s.gate.localLeases && outage(ctx, err) {
			cause = err
			l, source, err = s.fail(ctx, ask, q, start, err)
		}
		if !errors.Is(err, errBack) {
			return s.observe(ctx, l, source, err, cause, start)
		}
		cause, q.ID = nil, newID() // Redis may have granted the other
	}
}

// fail lets the failure mode decide.
func (s *Semaphore) fail(
	ctx context.Context,
	ask SlotRequest,
	q lease.Request,
	start time.Time,
	cause error,
) (*Lease, Source, error) {
	g := s.gate
	switch {
	case s.cfg.OnFailure == FailOpen:
		return s.hold(ctx, s.holding(q, "", nil)), SourceOpen, nil
	case s.cfg.OnFailure == FailLocal && !errors.Is(cause, ErrOverloaded):
		q.ID, q.Levels = newID(), slices.Clone(q.Levels) // Redis may have granted the other
		for i := range q.Levels {
			l := &q.Levels[i]
			l.Limit = max(1, l.Limit/int64(g.replicas))
			l.Weight, l.Floor = min(l.Weight, l.Limit), l.Floor/int64(g.replicas)
		}
		l, err := s.ask(ctx, g.localLeases, ask, q, start)
		return l, SourceLocal, err
	}
	return nil, denier(cause), cause
}

// outage reports whether an error is Redis's and not the caller's.
func outage(ctx context.Context, err error) bool {
	return !errors.Is(err, ErrFull) && !errors.Is(err, ErrClosed) &&
		!errors.Is(err, ErrMisconfigured) && !errors.Is(err, ErrLeaseLost) &&
		deadline.Err(ctx) == nil
}

// observe tells the observer what came of an acquire, and why the store did not decide.
func (s *Semaphore) observe(
	ctx context.Context,
	l *Lease,
	source Source,
	err, cause error,
	start time.Time,
) (*Lease, error) {
	if s.gate.observe == nil {
		return l, err
	}
	over := false
	defer func() {
		if !over { // Observe panics, so that nobody gets the lease and releases it
			_ = l.Release(ctx) // on failure the lease ends
		}
	}()
	e := AcquireEvent{Semaphore: s, Source: source, Err: err, Took: time.Since(start)}
	switch {
	case errors.As(err, &e.Full):
		e.Err = nil
	case err != nil && source != SourceClosed && source != SourceOverload:
		e.Source = SourceNone
	}
	if e.Err == nil {
		e.Err = cause
	}
	s.tell(ctx, e)
	over = true
	return l, err
}

// ask asks a store until it grants or rejects. All attempts have the same id, so that they are one
// request.
func (s *Semaphore) ask(
	ctx context.Context,
	store request.LeaseStore,
	ask SlotRequest,
	q lease.Request,
	start time.Time,
) (*Lease, error) {
	g := s.gate
	scope := s.scope(ask.Levels[0].Key)
	var over <-chan time.Time
	if ask.MaxWait > 0 && q.Waiters > 0 {
		timer := time.NewTimer(ask.MaxWait - time.Since(start))
		defer timer.Stop()
		over = timer.C
	}
	// A caller that may wait listens before it asks, or asks again once it listens, so that no
	// wake-up is lost.
	w, outermost := new(keeper.Waiter), ask.Levels[0].Key.outermost()
	if q.Waiters > 0 {
		w = g.keeper.Wait(q.ID, outermost)
		defer g.keeper.Leave(q.ID)
	}
	answered, sent := false, false
	defer func() {
		if sent && !answered { // the slot may be granted, or the id waits; OnQueue may panic
			s.abandon(store, scope, q.ID)
		}
	}()
	for position := int64(-1); ; {
		var hears bool
		q.Channel, hears = g.keeper.Channel(outermost, w)
		at, before := time.Now(), sent
		sent = true
		grant, err := store.Acquire(ctx, scope, q)
		if err != nil {
			sent = before || !errors.As(err, new(request.Unsent))
			return nil, err
		}
		answered = grant.Status != lease.Waiting
		switch grant.Status {
		case lease.Held:
			return s.granted(ctx, store, scope, q, grant, at), nil
		case lease.Full, lease.QueueFull:
			return nil, s.full(q, grant)
		case lease.Evicted:
			return nil, ErrLeaseLost
		}
		if store != g.localLeases {
			g.keeper.Attend(ctx, w, q.Channel, hears)
		}
		if ask.OnQueue != nil && grant.Position != position {
			ask.OnQueue(int(grant.Position))
		}
		position = grant.Position
		patience := s.patience(grant)
		fallback := g.leases != g.localLeases && store == g.localLeases
		if fallback {
			patience = min(patience, breaker.Pause)
		}
		poll := time.NewTimer(patience)
		err = nil
		select {
		case <-w.Woken:
			m, closing := g.keeper.Heard(w)
			if closing {
				err = ErrClosed
			} else if m.Token > grant.Token { // otherwise the grant is older than the question
				h := s.holding(q, scope, store)
				h.Granted(m, at)
				// Near the end of the lease, the caller may as well ask.
				if time.Until(h.Until()) > time.Duration(m.Left)*time.Microsecond/8 {
					poll.Stop()
					answered = true
					return s.hold(ctx, h), nil
				}
			}
		case <-poll.C:
			if fallback && g.answers(ctx, outermost) {
				err = errBack
			}
		case <-over:
			err = s.full(q, grant)
		case <-ctx.Done():
			err = fmt.Errorf("core: %w", ctx.Err())
		}
		poll.Stop()
		if err != nil {
			return nil, err
		}
	}
}

// granted returns the lease of a grant that was asked for at sent.
func (s *Semaphore) granted(
	ctx context.Context,
	store request.LeaseStore,
	scope string,
	q lease.Request,
	g lease.Grant,
	sent time.Time,
) *Lease {
	h := s.holding(q, scope, store)
	h.Granted(lease.Message{Token: g.Token, Left: g.Left, Used: g.Used[len(q.Levels)-1]}, sent)
	return s.hold(ctx, h)
}

// hold lets the keeper look after a lease from now on.
func (s *Semaphore) hold(ctx context.Context, h *keeper.Holding) *Lease {
	s.gate.keeper.Hold(h)
	return s.gate.newLease(ctx, h)
}

func (s *Semaphore) holding(
	q lease.Request,
	scope string,
	store request.LeaseStore,
) *keeper.Holding {
	q.Waiters = 0
	spec := keeper.Spec{
		ID: q.ID, Scope: scope, TTL: s.cfg.TTL, Store: store, Fenced: store == s.gate.leases,
		Adopt: s.cfg.OnLoss == AdoptOnLoss, Silent: s.cfg.OnLoss == NotifyOnLoss,
		Request: q, Owner: s,
	}
	if s.cfg.MaxHold > 0 {
		spec.Ends = time.Now().Add(s.cfg.MaxHold)
	}
	return keeper.NewHolding(spec)
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

// abandon releases a slot that may have been granted, whatever became of the caller.
func (s *Semaphore) abandon(store request.LeaseStore, scope, id string) {
	s.gate.keeper.Abandon(store, scope, id, s.cfg.TTL)
}
