package outbound

import (
	"errors"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
)

// admit waits for room, spends the charges and takes the slot.
func (x *exchange) admit(w *wait) (p *pass, err error) {
	defer func() {
		w.end()
		w.release() // unless the request was admitted with it
	}()
	for {
		if err := w.behind(); err != nil {
			return nil, err
		}
		p, denied, err := x.try(w)
		if p != nil && p.slot.lost() { // it must not be sent
			p.cancel()
			p.release()
			continue
		}
		if p != nil || err != nil {
			return p, err
		}
		if err := w.forRoom(denied); err != nil {
			return nil, err
		}
	}
}

// try returns what the request was admitted with, or what denied it. In the first round trip it
// asks for everything at once. If the slot or a rule has no room, and the request may wait, it
// waits for the slot first: a rule whose units are spent before the wait for a slot would see them
// used much later.
func (x *exchange) try(w *wait) (*pass, *denial, error) {
	if n := x.known(); n != nil {
		return nil, n, nil
	}
	if x.caps == nil || w.lease != nil {
		return x.reserve(w)
	}
	if err := x.settle(w); err != nil {
		return nil, nil, err
	}
	if x.t.spaced { // Admit would not space the requests
		return x.slotFirst(w)
	}
	s := x.t.cfg.Slot.Semaphore
	l, d, err := s.Admit(x.req.Context(), semaphore.Request{Caps: x.caps}, x.charges...)
	x.t.note(&d)
	if l != nil {
		return x.pass(l, l.Reservation(), &d), nil, nil
	}
	if err != nil {
		err = x.slotError(w, err)
		if w.left() == 0 || !errors.Is(err, ErrBusy) {
			return nil, nil, err
		}
	} else if denied := x.denial(&d, 0); denied.rank > byRule || denied.after > w.left() {
		return nil, denied, nil
	}
	return x.slotFirst(w)
}

// settling is for how long a request takes no slot after Redis has answered again. Meanwhile those that
// run take the slots again that Redis does not know.
const settling = 500 * time.Millisecond

// settle waits if Redis has just answered again.
func (x *exchange) settle(w *wait) error {
	left := settling - time.Since(time.Unix(0, x.t.unasked.Load()))
	if left <= 0 || x.away(x.req.Context()) {
		return nil
	}
	return w.sleep(min(left, w.left()))
}

// slotFirst waits for a slot, and then spends the charges. It leaves the line first, because requests
// that hold the slots may wait in it.
func (x *exchange) slotFirst(w *wait) (p *pass, denied *denial, err error) {
	w.leave()
	s := x.t.cfg.Slot.Semaphore
	w.lease, err = s.Acquire(x.req.Context(), semaphore.Request{
		Caps: x.caps, MaxWait: w.left(), OnQueue: func(int) { w.begin(s.Name(), 0) },
	})
	if err != nil {
		return nil, nil, x.slotError(w, err)
	}
	if err := w.behind(); err != nil {
		return nil, nil, err
	}
	if w.lease == nil {
		return nil, new(denial), nil
	}
	return x.reserve(w)
}

// slotError returns the error of a request that gets no slot. It is a BusyError if another time may
// be better.
func (x *exchange) slotError(w *wait, err error) error {
	name := x.t.cfg.Slot.Semaphore.Name()
	var full *semaphore.FullError
	if errors.As(err, &full) {
		busy := busyFor(name, full.RetryAfter)
		busy.estimated = true
		return w.busy(busy)
	}
	for _, final := range []error{
		core.ErrClosed, core.ErrMisconfigured, core.ErrCharge, core.ErrKey, semaphore.ErrRequest,
		x.req.Context().Err(),
	} {
		if final != nil && errors.Is(err, final) {
			return wrapped(err)
		}
	}
	busy := busyFor(name, outageRetry) // Redis failed, and the semaphore fails closed
	busy.Cause = err
	return busy
}

// outageRetry is when a request may find that Redis answers again.
const outageRetry = time.Second

// reserve spends the charges, and waits until they may act.
func (x *exchange) reserve(w *wait) (*pass, *denial, error) {
	left, asked := w.left(), time.Now()
	paid, d, err := x.spend(left)
	x.t.note(&d)
	switch {
	case err != nil:
		return nil, nil, wrapped(err)
	case !d.Allowed:
		return nil, x.denial(&d, left), nil
	}
	goesOn := false
	defer func() {
		if !goesOn { // also if Observe panics
			_ = paid.Cancel(x.req.Context()) // on failure it stays spent
		}
	}()
	if rule := x.delayedBy(&d); rule != nil {
		if denied, err := x.delay(w, paid, rule, d.Cause != nil, asked); denied != nil || err != nil {
			return nil, denied, err
		}
	}
	goesOn = true
	slot := w.lease
	w.lease = nil // it is the pass's
	return x.pass(slot, paid, &d), nil, nil
}

// spend spends the charges, for at most that time later. The reservation is nil if there are none, or
// if they are denied.
func (x *exchange) spend(left time.Duration) (*core.Reservation, core.Decision, error) {
	ctx, gate := x.req.Context(), x.t.cfg.Gate
	if len(x.charged) == 0 {
		d, err := gate.Decide(ctx, x.charges...)
		return nil, d, err
	}
	if left == 0 && !x.t.spaced { // a Gate remembers what it denies to a Charge
		return gate.Charge(ctx, x.charges...)
	}
	return gate.Reserve(ctx, left, x.charges...)
}

// delayedBy returns the policy with the longest delay, or nil.
func (x *exchange) delayedBy(d *core.Decision) (p *core.Policy) {
	longest := time.Duration(0)
	for _, r := range d.Results() {
		if !r.Policy.Shadow() && r.Delay > longest {
			p, longest = r.Policy, r.Delay
		}
	}
	return p
}

// overdue is how late a reservation may act. A process that stood still for longer, or a Redis, is asked
// again, so that the process does not send all that it has reserved meanwhile at once.
const overdue = 500 * time.Millisecond

// delay waits until a reservation may act, and then looks whether a cooldown has begun meanwhile,
// a hold has expired, or another than the one that gave the reservation decides: Redis, or this process
// while Redis does not answer. That one does not know the reservation.
func (x *exchange) delay(
	w *wait, paid *core.Reservation, by *core.Policy, local bool, asked time.Time,
) (*denial, error) {
	delay, slot := paid.Delay(), w.lease
	due := time.Now().Add(delay)
	w.begin(by.Name(), delay)
	if err := w.sleep(delay); err != nil {
		return nil, err
	}
	d, err := x.t.cfg.Gate.Decide(x.req.Context(), x.charges[:len(x.asks)]...)
	switch {
	case err != nil:
		return nil, wrapped(err)
	case !d.Allowed:
		return x.denial(&d, 0), nil
	case time.Since(due) > overdue || w.lease != slot || !paid.Kept():
		return new(denial), nil
	}
	x.t.note(&d)
	if away := d.Cause != nil; away != local || !away && x.t.unasked.Load() > asked.UnixNano() {
		return new(denial), nil
	}
	return nil, nil
}
