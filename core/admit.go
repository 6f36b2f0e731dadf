package core

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/request"
)

// TryAdmit spends all charges and takes a slot, or does neither. On one server, and if all keys
// share the outermost part, that is one step in Redis. Otherwise, and in memory, the charges are
// spent first, and refunded if there is no slot.
//
// If the request may go on, the Lease is not nil, and its Reservation is what was spent. If a
// charge denies, the Lease and the error are nil and no slot was asked for. If there is no slot,
// the error is a *FullError, and the Decision denies although all of its results fit. Other errors
// are those of Gate.Decide and TryAcquire.
func (s *Semaphore) TryAdmit(
	ctx context.Context,
	ask SlotRequest,
	charges ...Charge,
) (*Lease, Decision, error) {
	return s.admit(ctx, ask, 0, charges)
}

// Admit is TryAdmit and waits for a slot as Acquire does. The charges are spent while it waits, and
// refunded if it gets no slot.
func (s *Semaphore) Admit(
	ctx context.Context,
	ask SlotRequest,
	charges ...Charge,
) (*Lease, Decision, error) {
	return s.admit(ctx, ask, int64(s.cfg.MaxWaiters), charges)
}

func (s *Semaphore) admit(
	ctx context.Context,
	ask SlotRequest,
	waiters int64,
	charges []Charge,
) (_ *Lease, d Decision, err error) {
	if len(charges) == 0 {
		l, err := s.acquire(ctx, ask, waiters)
		d.Allowed = err == nil
		return l, d, err
	}
	q, err := s.request(ask, waiters)
	if err != nil {
		return nil, d, err
	}
	g, start := s.gate, time.Now()
	if g.known(ctx, algorithm.Decide, charges, &d) {
		return nil, d, nil
	}
	if err := g.keeper.Begin(); err != nil {
		return nil, d, err
	}
	defer g.keeper.End()
	p := newInquiry(algorithm.Decide, 0)
	defer p.release()
	p.keeps, p.holds = true, true
	at := &request.Slot{Scope: s.scope(ask.Levels[0].Key), Request: q}
	if waiters == 0 && s.inOneStep(ask, charges) {
		p.slot = at
	}
	decided := false
	defer func() {
		if decided {
			return
		}
		// Observe or a hook of the client panics, so nobody gets what was taken.
		if at.Sent {
			s.abandon(g.leases, at.Scope, q.ID)
		}
		if slices.ContainsFunc(p.wire, func(c charge) bool { return c.Spent > 0 }) {
			_ = g.reservation(p).Cancel(ctx) // on failure it stays spent
		}
	}()
	err = g.run(ctx, p, &d, charges)
	switch {
	case at.Refused():
		decided = true
		_, err = s.observe(ctx, nil, g.source, s.full(q, at.Grant), nil, start)
		return nil, d, err
	case at.Answered:
		l := s.granted(ctx, g.leases, at.Scope, q, at.Grant, start)
		l, _ = s.observe(ctx, l, g.source, nil, nil, start)
		l.paid, decided = g.reservation(p), true
		return l, d, nil
	case at.Sent && (d.Cause != nil || err != nil):
		s.abandon(g.leases, at.Scope, q.ID) // it may have been granted
	}
	decided = true
	if err != nil || !d.Allowed {
		return nil, d, err
	}

	paid := g.reservation(p)
	var l *Lease
	defer func() {
		if l != nil {
			return
		}
		_ = paid.Cancel(ctx) // on failure it stays spent, as if OnQueue panics while Redis fails
		for i := range p.wire {
			p.wire[i].Spent = 0
		}
		p.results(&d)
		d.Allowed = false
	}()
	var cause error
	if p.slot != nil && !errors.Is(d.Cause, ErrLedger) { // Redis was asked for it too
		cause = d.Cause
	}
	if l, err = s.take(ctx, ask, q, cause); l != nil {
		l.paid = paid
	}
	return l, d, err
}

// inOneStep reports whether the store can decide the charges and take the slot in one step.
func (s *Semaphore) inOneStep(ask SlotRequest, charges []Charge) bool {
	parts := make([]*request.Charge, len(charges))
	for i, c := range charges {
		parts[i] = &request.Charge{Key: c.Key.path, Outer: c.Key.outer}
	}
	return s.gate.store != nil && s.gate.store.TakesSlot(parts, ask.Levels[0].Key.outermost())
}
