package core

import (
	"context"
	"slices"
	"time"
)

// TryAdmit spends all charges and takes a slot, or does neither. In Redis that is one step if the outermost part of all
// keys is the same, or on one server. Else, and in memory, the charges are spent first, and given back if there is no slot.
//
// The Lease is not nil if the request may go on; its Reservation is what was spent. The Decision is that of the charges.
// It denies if there is no slot, although all of its results fit then, and the error is a *FullError. Where a charge
// denies, no slot was asked for, and the error is nil. Other errors are those of Gate.Decide and TryAcquire.
func (s *Semaphore) TryAdmit(ctx context.Context, ask Ask, charges ...Charge) (*Lease, Decision, error) {
	return s.admit(ctx, ask, 0, charges)
}

// Admit is TryAdmit, but waits for a slot as Acquire does. While it waits the charges are spent, and if it is refused they are
// given back.
func (s *Semaphore) Admit(ctx context.Context, ask Ask, charges ...Charge) (*Lease, Decision, error) {
	return s.admit(ctx, ask, int64(s.cfg.MaxWaiters), charges)
}

func (s *Semaphore) admit(ctx context.Context, ask Ask, waiters int64, charges []Charge) (_ *Lease, d Decision, err error) {
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
	if g.known(ctx, charges, &d) {
		return nil, d, nil
	}
	if err := g.leases.begin(); err != nil {
		return nil, d, err
	}
	defer g.leases.end()
	p := plans.Get().(*plan)
	defer p.free()
	p.keeps = true
	at := &slot{scope: s.scope(ask.Levels[0].Key), ask: q}
	if waiters == 0 && s.together(ask, charges) {
		p.slot = at
	}
	decided := false
	defer func() {
		if decided {
			return
		}
		// Observe panics, or a hook of the client's: nobody gets what was taken.
		if at.sent {
			s.abandon(ctx, g.leases.store, at.scope, q.ID)
		}
		if slices.ContainsFunc(p.wire, func(c charge) bool { return c.spent > 0 }) {
			_ = g.reservation(p).Cancel(ctx) // else it stays spent
		}
	}()
	err = g.run(ctx, p, &d, algorithmDecide, 0, charges)
	switch {
	case at.refused():
		decided = true
		_, err = s.observe(ctx, nil, full(q, at.grant), start)
		return nil, d, err
	case at.answered:
		l, _ := s.observe(ctx, s.granted(ctx, g.leases.store, at.scope, q, at.grant, start), nil, start)
		l.paid, decided = g.reservation(p), true
		return l, d, nil
	case at.sent && (d.Cause != nil || err != nil):
		s.abandon(ctx, g.leases.store, at.scope, q.ID) // it may have been granted
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
		_ = paid.Cancel(ctx) // else it stays spent, as where OnQueue panics and Redis is gone
		for i := range p.wire {
			p.wire[i].spent = 0
		}
		p.results(&d)
		d.Allowed = false
	}()
	var cause error
	if p.slot != nil { // Redis was asked for it too
		cause = d.Cause
	}
	if l, err = s.take(ctx, ask, q, cause); l != nil {
		l.paid = paid
	}
	return l, d, err
}

// together says whether one script can decide the charges and take the slot.
func (s *Semaphore) together(ask Ask, charges []Charge) bool {
	if s.gate.circuit == nil {
		return false
	}
	for _, c := range charges {
		if s.gate.perSlot && c.Key.outermost() != ask.Levels[0].Key.outermost() {
			return false
		}
	}
	return true
}
