package semaphore

import (
	"context"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/request"
)

// Admit spends all charges and takes a slot, or does neither. On one server, and if all keys share
// the outermost part, that is one step in Redis while Request.MaxWait is 0. Otherwise, and in
// memory, the charges are spent first. They stay spent while Admit waits for a slot, and are
// refunded if it gets none. After a wait, Admit asks again about the charges with core.NoCost, such
// as whether a key is blocked, and denies if one does not fit any more. If a hold of its charges
// has expired during the wait, as after an outage, it spends them again. With a charge that asks,
// it first looks for a free slot in one step, unless it lets holders come first at a server that may
// be empty. With a context of core.WithBackground and a MaxWait, it spends the charges when it has its
// slot.
//
// If the request may go on, the Lease is not nil, and its Reservation is what was spent. If a
// charge denies, the Lease and the error are nil and no slot is held. If there is no slot,
// the error is a *FullError, and the Decision denies although all of its results fit. Other errors
// are those of core.Gate.Decide and Acquire.
func (s *Semaphore) Admit(
	ctx context.Context, r Request, charges ...core.Charge,
) (l *Lease, d core.Decision, err error) {
	// Both are on the heap, because they are passed to an interface. The caller's charges are not.
	// append copies; slices.Clone may not.
	into, own := new(core.Decision), append([]core.Charge(nil), charges...)
	l, err = s.slots.admit(ctx, r, into, own)
	return l, *into, err
}

func (s made) admit(
	ctx context.Context, r Request, d *core.Decision, charges []core.Charge,
) (*Lease, error) {
	if len(charges) == 0 {
		l, err := s.acquire(ctx, r)
		d.Allowed = err == nil
		return l, err
	}
	if r.MaxWait > 0 && core.IsBackground(ctx) {
		if fits, err := s.gate.Peek(ctx, charges...); err == nil && fits.Allowed {
			return s.admitLast(ctx, r, d, fits, charges)
		}
	}
	c, err := s.newClaim(ctx, &r, d, charges)
	if err != nil {
		return nil, err
	}
	if err = inCore.Admit(ctx, s.gate, &c.slot, c.outermost, d, charges, c.take); err != nil {
		return nil, err
	}
	return c.end()
}

// admitLast is admit for background work, whose charges fit a moment ago: it waits for its slot before
// it spends them.
func (s made) admitLast(
	ctx context.Context, r Request, d *core.Decision, fits core.Decision, charges []core.Charge,
) (*Lease, error) {
	l, err := s.acquire(ctx, r)
	if err != nil {
		*d = fits
		d.Allowed = false
		return nil, err
	}
	defer func() {
		if !d.Allowed { // also if a hook panics
			_ = l.Release(ctx) // on failure the lease ends
		}
	}()
	l.paid, *d, err = s.gate.Charge(ctx, charges...)
	if err != nil || !d.Allowed {
		return nil, err
	}
	return l, nil
}

// claim is what one call of Admit asks for, and what it has got.
type claim struct {
	order
	ctx           context.Context
	slot          request.Slot // the order in the step of the charges
	charges, asks []core.Charge
	decision      *core.Decision

	lease *Lease
	none  error          // why there is no lease
	late  bool           // a slot was free too late: the charges that ask do not fit any more
	again *core.Decision // about the same charges, if they were spent again
}

func (s made) newClaim(
	ctx context.Context, r *Request, d *core.Decision, charges []core.Charge,
) (*claim, error) {
	o, err := s.order(r)
	if err != nil {
		return nil, err
	}
	c := &claim{
		order: o, ctx: ctx, charges: charges, asks: asking(charges), decision: d,
		slot: request.Slot{Scope: o.scope, Request: o.wanted, Abandon: s.abandon},
	}
	// A slot of the same step needs no second question.
	if len(c.asks) > 0 && o.wanted.Waiters > 0 && s.hub.Keeper.Settles(ctx, o.outermost) <= 0 {
		c.slot.Request.Waiters, c.slot.Waits = 0, true
	}
	return c, nil
}

// take takes the slot of a caller whose charges are spent. It reports whether there is one. In memory a
// caller counts as one that has waited: another goroutine may have run since, and a question costs no
// round trip.
func (c *claim) take(paid *core.Reservation, cause error) bool {
	if c.slot.Answered {
		l := c.granted(c.ctx, c.hub.Leases, c.scope, c.wanted, c.slot.Grant, c.start)
		c.lease, c.none = c.observe(c.ctx, l, core.SourceNone, nil, nil)
	} else {
		c.start = time.Now() // MaxWait is for the slot
		c.lease, c.none = c.order.take(c.ctx, cause)
		if c.lease != nil && (c.waited || c.slot.Missed || c.inMemory()) && !c.goesOn(paid) {
			c.lease = nil
		}
	}
	if c.lease != nil && c.again == nil {
		c.lease.paid = paid
	}
	return c.lease != nil
}

// end returns the lease, or why there is none, and completes the decision.
func (c *claim) end() (*Lease, error) {
	switch {
	case c.slot.Refused():
		_, c.none = c.observe(c.ctx, nil, core.SourceNone, c.full(c.wanted, c.slot.Grant), nil)
	case c.again != nil:
		*c.decision = *c.again
	case c.late && c.none == nil:
		*c.decision, c.none = c.gate.Peek(c.ctx, c.charges...)
		c.decision.Allowed = false
	}
	return c.lease, c.none
}

// abandonSlot releases a slot that may have been granted.
func (s made) abandonSlot(slot *request.Slot) {
	s.hub.Keeper.Abandon(s.hub.Leases, slot.Scope, slot.Request.ID, s.cfg.TTL)
}

// asking returns the charges that spend nothing and ask, such as whether a key is blocked.
func asking(charges []core.Charge) (asks []core.Charge) {
	for i := range charges {
		if charges[i].Cost == core.NoCost {
			asks = append(asks, charges[i])
		}
	}
	return asks
}

// goesOn looks, for a caller that has waited for its slot, whether what it has spent is still held, and
// whether the charges that ask still fit. It spends all charges again if a hold has expired. It releases
// the slot, and returns false, if the caller comes too late to go on.
func (c *claim) goesOn(paid *core.Reservation) (goes bool) {
	defer func() {
		if !goes { // also if a hook panics
			_ = c.lease.Release(c.ctx) // on failure the lease ends
		}
	}()
	switch {
	case !paid.Kept():
		_ = paid.Cancel(c.ctx) // on failure it stays spent
		c.again = new(core.Decision)
		c.lease.paid, *c.again, c.none = c.gate.Charge(c.ctx, c.charges...)
		return c.none == nil && c.again.Allowed
	case len(c.asks) > 0:
		var d core.Decision
		d, c.none = c.gate.Decide(c.ctx, c.asks...)
		c.late = c.none != nil || !d.Allowed
	}
	return !c.late
}
