package semaphore

import (
	"context"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/lease"
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
	c, err := s.newClaim(ctx, r, d, charges)
	if err != nil {
		return nil, err
	}
	err = core.Inside(hub.Pass{}).Admit(
		ctx, s.gate, &c.slot, outermost(r.Caps[0].Key), d, charges, c.take)
	if err != nil {
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
	made
	ctx           context.Context
	asked         Request
	wanted        lease.Request // the same for the store
	slot          request.Slot  // the same in the step of the charges
	charges, asks []core.Charge
	decision      *core.Decision
	start         time.Time

	lease *Lease
	none  error          // why there is no lease
	late  bool           // a slot was free too late: the charges that ask do not fit any more
	again *core.Decision // about the same charges, if they were spent again
}

func (s made) newClaim(
	ctx context.Context, r Request, d *core.Decision, charges []core.Charge,
) (*claim, error) {
	q, err := r.lease(s.Semaphore)
	if err != nil {
		return nil, err
	}
	c := &claim{
		made: s, ctx: ctx, asked: r, wanted: q, charges: charges, asks: asking(charges), decision: d,
		slot:  request.Slot{Scope: s.scope(r.Caps[0].Key), Request: q, Abandon: s.abandon},
		start: time.Now(),
	}
	// A slot of the same step needs no second question.
	if len(c.asks) > 0 && q.Waiters > 0 && s.hub.Keeper.Settles() <= 0 {
		c.slot.Request.Waiters, c.slot.Waits = 0, true
	}
	return c, nil
}

// take takes the slot of a caller whose charges are spent. It reports whether there is one.
func (c *claim) take(paid *core.Reservation, cause error) bool {
	var l *Lease
	if c.slot.Answered {
		l = c.granted(c.ctx, c.hub.Leases, c.slot.Scope, c.wanted, c.slot.Grant, c.start)
		l, c.none = c.observe(c.ctx, l, AcquireEvent{Key: c.asked.innermost(), Source: c.source()}, nil, c.start)
	} else {
		var waited bool
		l, waited, c.none = c.takeWatched(c.ctx, &c.asked, c.wanted, cause, c.slot.Missed)
		if l != nil && waited {
			l, c.again, c.late, c.none = c.lookAgain(c.ctx, l, paid, c.charges, c.asks)
		}
	}
	if c.lease = l; l != nil && c.again == nil {
		l.paid = paid
	}
	return l != nil
}

// end returns the lease, or why there is none, and completes the decision.
func (c *claim) end() (*Lease, error) {
	switch {
	case c.slot.Refused():
		full := AcquireEvent{Key: c.asked.innermost(), Source: c.source(), Err: c.full(c.wanted, c.slot.Grant)}
		_, c.none = c.observe(c.ctx, nil, full, nil, c.start)
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

// takeWatched takes a slot, and reports whether the caller has waited for it, as one does that has
// missed a slot before. In memory it reports that always: another goroutine may have run since, and
// a question costs no round trip.
func (s *Semaphore) takeWatched(
	ctx context.Context, r *Request, q lease.Request, cause error, missed bool,
) (l *Lease, waited bool, err error) {
	l, waited, err = s.take(ctx, r, q, cause)
	return l, waited || missed || s.inMemory(), err
}

// lookAgain looks, for a caller that has waited for its slot, whether what it has spent is still
// held, and whether the charges that ask still fit. It spends all charges again if a hold has
// expired. It gives the slot back, and returns no lease, if the caller comes too late to go on.
func (s *Semaphore) lookAgain(
	ctx context.Context, l *Lease, paid *core.Reservation, charges, asks []core.Charge,
) (_ *Lease, again *core.Decision, late bool, err error) {
	goesOn := false
	defer func() {
		if !goesOn { // also if a hook panics
			_ = l.Release(ctx) // on failure the lease ends
		}
	}()
	var d core.Decision
	switch {
	case !paid.Kept():
		_ = paid.Cancel(ctx) // on failure it stays spent
		l.paid, d, err = s.gate.Charge(ctx, charges...)
		again = &d
	case len(asks) > 0:
		d, err = s.gate.Decide(ctx, asks...)
	default:
		d.Allowed = true
	}
	if goesOn = err == nil && d.Allowed; !goesOn {
		return nil, again, again == nil, err
	}
	return l, again, false, nil
}
