package core

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/request"
)

// maxReserve is the longest wait of a reservation: 10 years.
const maxReserve = algorithm.Longest / 10

// Reservation is spent charges that can be settled or cancelled. Reserve, Charge and Admit return
// it. It is safe for concurrent use. The zero value and nil have nothing to settle.
type Reservation struct {
	gate  *Gate
	acts  time.Time // when the request may go on
	held  []charge
	place []int8 // of each charge: its index in held, or -1

	once sync.Once
	err  error
}

// Reserve spends all charges or none, as Decide does. Charges on a [TokenBucket] or a [LeakyBucket]
// may be for later, by at most maxWait, and at most 10 years: Reservation.Delay says when the
// request may go on. All other algorithms have room now or deny. The Reservation is nil if the
// Decision denies. The errors are those of Decide.
func (g *Gate) Reserve(
	ctx context.Context,
	maxWait time.Duration,
	charges ...Charge,
) (r *Reservation, d Decision, err error) {
	if maxWait < 0 {
		return nil, Decision{}, fmt.Errorf("%w: Reserve for %v", ErrCharge, maxWait)
	}
	if g.known(ctx, algorithm.Reserve, charges, &d) {
		return nil, d, nil
	}
	p := newPlan(algorithm.Reserve, min(maxWait, maxReserve).Microseconds())
	defer p.release()
	p.keeps = true
	err = g.run(ctx, p, &d, charges)
	if err != nil || !d.Allowed {
		return nil, d, err
	}
	r = g.reservation(p)
	r.acts = time.Now().Add(d.delay())
	return r, d, nil
}

// Charge is Decide with a Reservation to settle or cancel. It has no delay: a [LeakyBucket] is a
// meter here, and a queue with Reserve. The Reservation is nil if the Decision denies.
func (g *Gate) Charge(
	ctx context.Context,
	charges ...Charge,
) (r *Reservation, d Decision, err error) {
	if g.known(ctx, algorithm.Decide, charges, &d) {
		return nil, d, nil
	}
	p := newPlan(algorithm.Decide, 0)
	defer p.release()
	p.keeps = true
	err = g.run(ctx, p, &d, charges)
	if err != nil || !d.Allowed {
		return nil, d, err
	}
	return g.reservation(p), d, nil
}

// reservation returns what an admitted plan has spent.
func (g *Gate) reservation(p *plan) *Reservation {
	p.whole[0].Buffer = nil // the reservation keeps parts of it
	return &Reservation{
		gate:  g,
		held:  slices.Clone(p.wire),
		place: slices.Clone(p.place[:len(p.asked)]),
	}
}

// Delay returns how long to wait before the request may go on. It is 0 if it may go on now.
func (r *Reservation) Delay() time.Duration {
	if r == nil {
		return 0
	}
	return max(0, time.Until(r.acts))
}

// Cancel gives back the whole cost of each charge that still counts, in any order. A charge on a
// [TokenBucket] or a [LeakyBucket] counts until nothing of the key is used, one on a window or a
// period until that ends, and one on a log until more than 1000 entries followed. docs/limits.md
// has the bounds of what refunds admit. If the key's limit has changed, Cancel gives back what the
// units cost when they were charged.
//
// Only the first call of Cancel or Settle counts; later calls return its error. Cancel runs to its
// end even if ctx is cancelled, for at most Config.Timeout. If it fails, the charges may stay
// spent.
func (r *Reservation) Cancel(ctx context.Context) error {
	if r == nil {
		return nil
	}
	return r.settle(ctx, EventCancel, make([]int64, len(r.place)))
}

// Settle sets what was spent: one number for each charge, in the order in which they were reserved.
// Settle for less gives back the rest, as Cancel does. Settle for more charges the difference even
// if it does not fit, until twice the limit is used; the rest is dropped. That debt is paid before
// anything else is admitted, in the next window too, and reaches at most 10 years ahead. A limit
// without state settles nothing.
//
// See Cancel for repeated calls, contexts and failures. Other errors wrap ErrCharge, and settle
// nothing.
func (r *Reservation) Settle(ctx context.Context, actual ...int64) error {
	if r == nil {
		return nil
	}
	if len(actual) != len(r.place) {
		return fmt.Errorf("%w: settling %d of %d", ErrCharge, len(actual), len(r.place))
	}
	for i, n := range actual {
		if n < 0 {
			return fmt.Errorf("%w: charge %d settled as %d", ErrCharge, i, n)
		}
	}
	return r.settle(ctx, EventSettle, actual)
}

func (r *Reservation) settle(ctx context.Context, kind EventKind, actual []int64) error {
	r.once.Do(func() {
		if r.gate == nil {
			return
		}
		start := time.Now()
		detached := context.WithoutCancel(ctx)
		r.err = r.gate.correct(detached, r.held, r.totals(actual))
		r.gate.tell(ctx, Event{Kind: kind, Err: r.err, Took: time.Since(start)})
	})
	return r.err
}

// totals returns the actual units of each held charge.
func (r *Reservation) totals(actual []int64) []int64 {
	totals := make([]int64, len(r.held))
	for i, at := range r.place {
		if at >= 0 {
			totals[at] = min(totals[at], math.MaxInt64-actual[i]) + actual[i]
		}
	}
	return totals
}

// correct makes the held charges ones of that many units, in one round trip for each hash slot.
func (g *Gate) correct(ctx context.Context, held []charge, units []int64) error {
	var here, there []*request.Charge
	keep := func(c charge) {
		if c.local {
			here = append(here, &c.Charge)
		} else {
			there = append(there, &c.Charge)
		}
	}
	for i, c := range held {
		if c.Spent == units[i] || c.failed || !c.Fits {
			continue // nobody counted it, or it is a shadow without room
		}
		spent := c.Limit
		// The limit may have changed since, and only the present one can read the state.
		if l, err := c.policy.limitOf(ctx, c.key, c.own); err == nil && !c.local &&
			c.from.suffix == l.suffix {
			c.Limit = l.current()
		}
		if c.Fits = c.Spent > units[i]; c.Fits { // is refunded
			c.Cost = algorithm.Back(spent, c.Limit, c.Spent-units[i])
		} else {
			// A cost is at most the limit, and a debt may be once more.
			capacity := c.Limit.Capacity()
			more := min(units[i]-c.Spent, 2*capacity)
			if c.Fits = false; more > capacity {
				c.Cost = c.Limit.Cost(more - capacity)
				keep(c)
			}
			c.Cost = c.Limit.Cost(min(more, capacity))
		}
		keep(c)
	}
	if len(here) > 0 {
		_ = g.local.Decide(ctx, corrections(here)) // memory does not fail
	}
	if len(there) == 0 {
		return nil
	}
	parts := g.store.Split(there)
	if parts == nil {
		parts = [][]*request.Charge{there}
	}
	var errs []error
	for _, charges := range parts {
		errs = append(errs, g.send(ctx, corrections(charges)))
	}
	return errors.Join(errs...)
}

// corrections refunds the charges that fit and forces the others. Two charges of one state are in
// two requests.
func corrections(charges []*request.Charge) []request.Request {
	requests := []request.Request{
		{Op: algorithm.Give},
		{Op: algorithm.Force},
		{Op: algorithm.Force},
	}
	for i, c := range charges {
		at := 1
		if c.Fits {
			at = 0
		} else if i > 0 && charges[i-1].SameState(c) {
			at = 2
		}
		requests[at].Charges = append(requests[at].Charges, c)
	}
	return slices.DeleteFunc(requests, func(r request.Request) bool { return len(r.Charges) == 0 })
}
