package outbound

import (
	"errors"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
)

// admit waits for room, spends the charges and takes the slot.
func (x *delivery) admit() (*pass, error) {
	defer x.end()
	for {
		if err := x.behind(); err != nil {
			return nil, err
		}
		p, denied, err := x.try()
		if p != nil || err != nil {
			return p, err
		}
		if err := x.forRoom(denied); err != nil {
			return nil, err
		}
	}
}

// try returns what the request was admitted with, or what denied it. In the first round trip it
// asks for everything at once. If the slot or a rule has no room, and the request may wait, it
// waits for the slot first: a rule whose units are spent before the wait for a slot would see them
// used much later.
func (x *delivery) try() (*pass, *BusyError, error) {
	if len(x.caps) == 0 || x.lease != nil {
		return x.reserve()
	}
	// Admit would not space the requests, nor wait until those that run have taken the slots again that
	// Redis does not know.
	if x.t.spaced || x.t.hub.Keeper.Settles(x.req.Context(), x.outermost()) > 0 {
		return x.slotFirst()
	}
	l, d, err := x.t.cfg.Slot.Semaphore.Admit(
		x.req.Context(), semaphore.Request{Caps: x.caps}, x.charges...,
	)
	if l != nil {
		x.note(&d)
		return x.pass(l, l.Reservation())
	}
	denied := x.denial(&d, 0)
	if err != nil {
		if denied, err = x.noSlot(err); err != nil || x.left() == 0 {
			return nil, denied, err
		}
	} else if denied.rank > byRule || denied.After > x.left() || x.yielding() {
		return nil, denied, nil
	}
	return x.slotFirst()
}

// slotFirst waits for a slot, and then spends the charges. It leaves the line first, because requests
// that hold the slots may wait in it.
func (x *delivery) slotFirst() (p *pass, denied *BusyError, err error) {
	x.leave()
	s := x.t.cfg.Slot.Semaphore
	x.lease, err = s.Acquire(x.context(), semaphore.Request{
		Caps: x.caps, MaxWait: x.left(), OnQueue: func(int) { x.begin(s.Name(), 0) },
	})
	if err != nil {
		denied, err = x.noSlot(err)
		return nil, denied, err
	}
	if err := x.behind(); err != nil {
		return nil, nil, err
	}
	if x.lease == nil {
		return nil, new(BusyError), nil
	}
	return x.reserve()
}

// noSlot returns what denies a request that gets no slot, or its error if no other time is better.
func (x *delivery) noSlot(err error) (*BusyError, error) {
	denied := &BusyError{Rule: x.t.cfg.Slot.Semaphore.Name(), rank: bySlot}
	var full *semaphore.FullError
	if errors.As(err, &full) {
		denied.After = full.RetryAfter
		return denied, nil
	}
	for _, final := range []error{
		core.ErrClosed, core.ErrMisconfigured, core.ErrCharge, core.ErrKey, semaphore.ErrRequest,
		x.req.Context().Err(),
	} {
		if final != nil && errors.Is(err, final) {
			return nil, wrapped(err)
		}
	}
	denied.After = outageRetry // Redis failed, and the semaphore fails closed
	denied.Cause = err
	return denied, nil
}

// outageRetry is when a request may find that Redis answers again.
const outageRetry = time.Second

// reserve spends the charges, and waits until they may act.
func (x *delivery) reserve() (*pass, *BusyError, error) {
	left, asked := x.left(), time.Now()
	if x.yielding() {
		left = 0
	}
	paid, d, err := x.spend(left)
	switch {
	case err != nil:
		return nil, nil, wrapped(err)
	case !d.Allowed:
		return nil, x.denial(&d, left), nil
	}
	x.note(&d)
	if denied, err := x.delay(paid, &d, asked); denied != nil || err != nil {
		x.giveBack(paid)
		return nil, denied, err
	}
	slot := x.lease
	x.lease = nil // it is the pass's
	return x.pass(slot, paid)
}

// note keeps what the decision that admitted a request tells of its rules.
func (x *delivery) note(d *core.Decision) {
	for i := range x.ruled {
		by, r := d.At(i), &x.ruled[i]
		r.left, r.limit, r.due = by.Remaining, by.Limit, time.Time{}
		if by.Source == core.SourceLocal { // what other processes leave is not known
			r.left = 0
		}
		if by.Delay > 0 {
			r.due = time.Now().Add(by.Delay)
		}
	}
}

// giveBack refunds what a request has spent that is not sent. A turn that has come stays spent, as if it had
// been used: others have the turns behind it, and whoever got the units would go beside one of those.
func (x *delivery) giveBack(paid *core.Reservation) {
	kept := make([]int64, len(x.charges)) // the asks spend nothing
	for i := range x.ruled {
		if due := x.ruled[i].due; !due.IsZero() && !time.Now().Before(due) {
			kept[i] = inside.Spent(paid)[i]
		}
	}
	_ = paid.Settle(x.req.Context(), kept...) // on failure all stays spent
}

// spend spends the charges, for at most that time later. The Reservation is nil if there is nothing to
// refund. Decide costs least, and a Gate remembers what it denies.
func (x *delivery) spend(left time.Duration) (*core.Reservation, core.Decision, error) {
	if !x.t.refunds && !x.t.spaced {
		d, err := x.t.cfg.Gate.Decide(x.req.Context(), x.charges...)
		if err != nil || d.Allowed || left == 0 {
			return nil, d, err
		}
	}
	if left == 0 && !x.t.spaced {
		return x.t.cfg.Gate.Charge(x.req.Context(), x.charges...)
	}
	return x.t.cfg.Gate.Reserve(x.context(), left, x.charges...)
}

// overdue is how late a reservation may act. A process that stood still for longer, or a Redis, is asked
// again, so that the process does not send all that it has reserved meanwhile at once.
const overdue = 500 * time.Millisecond

// delay waits until a reservation may act, and then looks whether a cooldown has begun meanwhile,
// a hold has expired, or another than the one that gave the reservation decides: Redis, or this process
// while Redis does not answer. That one does not know the reservation.
func (x *delivery) delay(
	paid *core.Reservation, by *core.Decision, asked time.Time,
) (*BusyError, error) {
	longest := core.Result{}
	for _, r := range by.Results() {
		if !r.Policy.Shadow() && r.Delay > longest.Delay {
			longest = r
		}
	}
	if longest.Delay == 0 {
		return nil, nil
	}
	delay, slot := paid.Delay(), x.lease
	due := time.Now().Add(delay)
	x.begin(longest.Policy.Name(), delay)
	if err := x.sleep(delay); err != nil {
		return nil, err
	}
	d, err := x.t.cfg.Gate.Decide(x.req.Context(), x.asks()...)
	switch {
	case err != nil:
		return nil, wrapped(err)
	case !d.Allowed:
		return x.denial(&d, 0), nil
	case !paid.Kept():
		_ = paid.Cancel(x.req.Context()) // what has gone back is not to be charged as a turn
		return new(BusyError), nil
	case time.Since(due) > overdue, x.lease != slot,
		by.Cause != nil && d.Cause == nil, by.Cause == nil && x.t.hub.Keeper.Broke().After(asked):
		return new(BusyError), nil
	}
	return nil, nil
}
