package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/lease"
)

func (s *Semaphore) acquire(ctx context.Context, ask Ask, waiters int64) (*Lease, error) {
	if err := s.gate.leases.begin(); err != nil {
		return nil, err
	}
	defer s.gate.leases.end()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("core: %w", err)
	}
	q, err := s.request(ask, waiters)
	if err != nil {
		return nil, err
	}
	return s.take(ctx, ask, q, nil)
}

// errBack ends a wait in this process for a slot: Redis answers again.
var errBack = errors.New("core: redis is back")

// take takes a slot, in Redis or as OnFailure says, from the start if Redis has failed already with this cause.
func (s *Semaphore) take(ctx context.Context, ask Ask, q lease.Request, cause error) (l *Lease, err error) {
	for start := time.Now(); ; {
		if err = cause; err == nil {
			l, err = s.ask(ctx, s.gate.leases.store, ask, q, start)
		}
		if err != nil && s.gate.circuit != nil && outage(ctx, err) {
			l, err = s.fail(ctx, ask, q, start, err)
		}
		if !errors.Is(err, errBack) {
			return s.observe(ctx, l, err, start)
		}
		cause, q.ID = nil, newID() // Redis may have granted the other
	}
}

// fail lets the failure mode decide.
func (s *Semaphore) fail(ctx context.Context, ask Ask, q lease.Request, start time.Time, cause error) (*Lease, error) {
	g := s.gate
	switch s.cfg.OnFailure {
	case Open:
		h := s.holding(q, nil)
		h.until = h.ends
		g.leases.hold(h)
		return newLease(ctx, h), nil
	case Local:
		q.ID, q.Levels = newID(), slices.Clone(q.Levels) // Redis may grant the other
		for i := range q.Levels {
			l := &q.Levels[i]
			l.Limit = max(1, l.Limit/int64(g.replicas))
			l.Weight = min(l.Weight, l.Limit)
		}
		return s.ask(ctx, g.leases.local, ask, q, start)
	}
	return nil, cause
}

// outage says whether an error is Redis's and not the caller's.
func outage(ctx context.Context, err error) bool {
	return !errors.Is(err, ErrFull) && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrMisconfigured) && ended(ctx) == nil
}

func (s *Semaphore) observe(ctx context.Context, l *Lease, err error, start time.Time) (*Lease, error) {
	observe := s.gate.observe
	if observe == nil {
		return l, err
	}
	over := false
	defer func() {
		if !over { // it panics, and nobody will release what nobody gets
			_ = l.Release(ctx) // else its lease ends
		}
	}()
	observe(ctx, Event{Operation: "acquire", Err: err, Took: time.Since(start)})
	over = true
	return l, err
}

// ask asks until there is an answer. The id is the same all along, so that asking again is no second ask.
func (s *Semaphore) ask(ctx context.Context, store leaseStore, ask Ask, q lease.Request, start time.Time) (*Lease, error) {
	leases := s.gate.leases
	scope := s.scope(ask.Levels[0].Key)
	var over <-chan time.Time
	if ask.MaxWait > 0 && q.Waiters > 0 {
		timer := time.NewTimer(ask.MaxWait - time.Since(start))
		defer timer.Stop()
		over = timer.C
	}
	// Whoever may wait listens before he asks, or asks again once he does, so that no wake-up is lost.
	w, outermost := new(waiter), ask.Levels[0].Key.outermost()
	if q.Waiters > 0 {
		w = leases.wait(q.ID, outermost)
		defer leases.leave(q.ID)
	}
	answered := false
	defer func() {
		if !answered { // it may have been granted, or waits; also where OnQueue panics
			s.abandon(ctx, store, scope, q.ID)
		}
	}()
	for position := int64(-1); ; {
		var hears bool
		q.Channel, hears = leases.channel(outermost, w)
		sent := time.Now()
		grant, err := store.acquire(ctx, scope, q)
		if err != nil {
			return nil, err
		}
		answered = grant.Status != lease.Waiting
		switch grant.Status {
		case lease.Held:
			return s.granted(ctx, store, scope, q, grant, sent), nil
		case lease.Full, lease.QueueFull:
			return nil, full(q, grant)
		case lease.Evicted:
			return nil, ErrLeaseLost
		}
		if store != leases.local {
			leases.attend(ctx, w, q.Channel, hears)
		}
		if ask.OnQueue != nil && grant.Position != position {
			ask.OnQueue(int(grant.Position))
		}
		position = grant.Position
		patience := s.patience(grant)
		fallback := s.gate.circuit != nil && store == leases.local
		if fallback {
			patience = min(patience, circuitPause)
		}
		poll := time.NewTimer(patience)
		err = nil
		select {
		case <-w.woken:
			m, closing := leases.heard(w)
			if closing {
				err = ErrClosed
			} else if m.Token > grant.Token { // else it was granted and over before it asked
				h := s.holding(q, store)
				h.granted(m, scope, sent)
				if time.Until(h.until) > time.Duration(m.Left)*time.Microsecond/8 { // else it may as well ask
					poll.Stop()
					answered = true
					leases.hold(h)
					return newLease(ctx, h), nil
				}
			}
		case <-poll.C:
			if fallback && s.gate.circuit.enter() == nil {
				s.gate.circuit.abandon()
				err = errBack
			}
		case <-over:
			err = full(q, grant)
		case <-ctx.Done():
			err = fmt.Errorf("core: %w", ctx.Err())
		}
		poll.Stop()
		if err != nil {
			return nil, err
		}
	}
}

// granted is the lease of a grant that was asked for at a time.
func (s *Semaphore) granted(ctx context.Context, store leaseStore, scope string, q lease.Request, g lease.Grant, sent time.Time) *Lease {
	h := s.holding(q, store)
	h.granted(lease.Message{Token: g.Token, Left: g.Left, Used: g.Used[len(q.Levels)-1]}, scope, sent)
	s.gate.leases.hold(h)
	return newLease(ctx, h)
}

func (s *Semaphore) holding(q lease.Request, store leaseStore) *holding {
	q.Waiters = 0
	h := &holding{id: q.ID, owner: s.gate.leases, lease: s.cfg.Lease, store: store, onLoss: s.cfg.OnLoss, request: q, gone: make(chan struct{})}
	if s.cfg.MaxHold > 0 {
		h.ends = time.Now().Add(s.cfg.MaxHold)
	}
	return h
}

// granted makes it a lease that was granted after sent.
func (h *holding) granted(m lease.Message, scope string, sent time.Time) {
	h.scope, h.inUse = scope, m.Used
	if h.store == h.owner.store {
		h.token.Store(m.Token)
	}
	left := time.Duration(m.Left) * time.Microsecond
	h.renewed(sent, left)
	if soon := sent.Add(jitter(left / 3)); soon.Before(h.due) { // who was let in while waiting was so for a short time
		h.due = soon
	}
}

// patience is when to ask again although nobody called: the first in the queue when the first lease ends, in case its holder
// has died; all others now and then, in case a call was lost, and well before the lease that they were told of ends.
func (s *Semaphore) patience(g lease.Grant) time.Duration {
	wait := jitter(min(s.cfg.Lease/3, lease.Claim*time.Microsecond*3/5))
	if next := time.Duration(g.Next) * time.Microsecond; g.Position == 0 && g.Next >= 0 && next < wait {
		wait = next + time.Millisecond
	}
	return max(wait, 10*time.Millisecond)
}

// abandon gives up what was asked for, and may have been granted, whatever became of the caller.
func (s *Semaphore) abandon(ctx context.Context, store leaseStore, scope, id string) {
	detached := context.WithoutCancel(ctx)
	s.gate.tasks.run(func() { _, _ = store.release(detached, scope, []string{id}) }) // else its lease ends
}
