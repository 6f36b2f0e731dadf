package core

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
)

// maxReserve is the longest wait of a reservation: 10 years.
const maxReserve = algorithm.Longest / 10

// Reservation is spent charges that can be settled or cancelled. Reserve, Charge and Admit return
// it. It is safe for concurrent use. The zero value and nil have nothing to settle.
//
// A Reservation under a PolicyConfig.Hold renews itself in the background, as a Lease does,
// whatever becomes of the context that it was made with. So what it has spent goes back if its
// process dies: at the latest one Hold after that. The same happens when the Gate is closed before
// the Reservation is settled, and when the program has dropped it: once the garbage collector has
// found that, its holds run out.
type Reservation struct {
	gate  *Gate
	acts  time.Time // when the request may go on
	spent []charge
	place []int8 // of each charge: its index in spent, or -1
	hold  hold

	once sync.Once
	err  error
}

// Reserve spends all charges or none, as Decide does. Charges on a [TokenBucket] or a [LeakyBucket]
// may be for later, by at most maxWait, and at most 10 years: Reservation.Delay says when the
// request may go on. All other algorithms have room now or deny. The Reservation is nil if the
// Decision denies. The errors are those of Decide.
//
// With a context of [WithBackground], Reserve itself waits for room, for at most half of maxWait.
func (g *Gate) Reserve(
	ctx context.Context, maxWait time.Duration, charges ...Charge,
) (r *Reservation, d Decision, err error) {
	if until := yieldsUntil(ctx, maxWait); !until.IsZero() {
		return g.yield(ctx, until, maxWait, false, true, charges)
	}
	return g.reserve(ctx, maxWait, true, charges)
}

// reserve is Reserve. It holds charges only if asked.
func (g *Gate) reserve(
	ctx context.Context, maxWait time.Duration, holds bool, charges []Charge,
) (r *Reservation, d Decision, err error) {
	if maxWait < 0 {
		return nil, d, fmt.Errorf("%w: Reserve for %v", ErrCharge, maxWait)
	}
	bound := min(maxWait, maxReserve).Microseconds()
	r, err = g.spend(ctx, &d, algorithm.Reserve, bound, holds, charges)
	if r != nil {
		r.acts = time.Now().Add(d.delay())
	}
	return r, d, err
}

// Charge is Decide with a Reservation to settle or cancel. It has no delay: a [LeakyBucket] is a
// meter here, and a queue with Reserve. The Reservation is nil if the Decision denies.
//
// If ctx is cancelled while charges under a Hold are on their way, Charge, like Reserve, waits for
// the answer, for at most Config.Timeout, and gives back what was spent.
func (g *Gate) Charge(
	ctx context.Context, charges ...Charge,
) (r *Reservation, d Decision, err error) {
	r, err = g.spend(ctx, &d, algorithm.Decide, 0, true, charges)
	return r, d, err
}

// spend is decide with a reservation of what is spent, which holds charges only if asked.
func (g *Gate) spend(
	ctx context.Context, d *Decision, op algorithm.Operation, bound int64, holds bool, charges []Charge,
) (*Reservation, error) {
	began, known := g.known(ctx, op, charges, d)
	if known {
		return nil, nil
	}
	p := newInquiry(op, bound, began)
	defer p.release()
	p.whole[0].Receipts = true
	p.holds = holds
	if err := g.run(ctx, p, d, charges); err != nil || !d.Allowed {
		return nil, err
	}
	return g.reservation(p), nil
}

// reservation returns what an admitted inquiry has spent.
func (g *Gate) reservation(p *inquiry) *Reservation {
	p.whole[0].Buffer = nil // the reservation keeps parts of it
	r := &Reservation{
		gate:  g,
		spent: slices.Clone(p.wire),
		place: slices.Clone(p.place),
		hold:  hold{id: p.whole[0].Hold, began: p.heldSince, since: p.heldSince},
	}
	r.renewLater()
	return r
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
// period until that ends, and one on a log until more than 1000 entries followed.
// docs/reference/limits.md has the bounds of what refunds admit. If the key's limit has changed,
// Cancel gives back what the units cost when they were charged.
//
// Only the first call of Cancel or Settle counts; later calls return its error. Cancel runs to its
// end even if ctx is cancelled, for at most Config.Timeout. If it fails, it is sent again in the
// background as long as it certainly counts once: until Redis has it or the Gate is closed, if Redis
// refused it or could not be reached. If it was sent and the answer was lost, charges under a Hold
// are cancelled as long as that lasts, and the others may stay spent.
func (r *Reservation) Cancel(ctx context.Context) error {
	if r == nil {
		return nil
	}
	return r.settle(ctx, OpCancel, make([]int64, len(r.place)))
}

// Settle sets what was spent: one number for each charge, in the order in which they were reserved.
// Settle for less gives back the rest, as Cancel does. Settle for more charges the difference even
// if it does not fit. That debt is paid before anything else is admitted: by what refills in at most
// 10 years, or by the next windows, each of which pays as much as the limit. A SlidingWindow and a
// SlidingLog count up to twice the limit, and drop the rest. A limit without state settles nothing. A
// charge that was held for too long has gone back, so Settle charges all that was spent, in the same
// way as a debt.
//
// See Cancel for repeated calls, for contexts and for what happens if Settle fails. Errors that wrap
// ErrCharge settle nothing.
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
	return r.settle(ctx, OpSettle, actual)
}

func (r *Reservation) settle(ctx context.Context, op Op, actual []int64) error {
	if r.gate == nil {
		return nil
	}
	first := false
	start := time.Now()
	r.once.Do(func() {
		first = true
		since := r.hold.end()
		open, err := r.correct(context.WithoutCancel(ctx), r.totals(actual))
		r.err = err
		if len(open) > 0 {
			r.gate.tasks.Go(func() { r.settleAgain(op, open, since) })
		}
	})
	if first { // Observe may settle it too
		for i := range r.spent {
			if c := &r.spent[i]; r.holds(c) {
				c.from.policy.held.Add(time.Since(r.hold.began))
			}
		}
		r.gate.tellReservation(ctx, op, r.err, time.Since(start))
	}
	return r.err
}

// totals returns the actual units of each spent charge.
func (r *Reservation) totals(actual []int64) []int64 {
	totals := make([]int64, len(r.spent))
	for i, at := range r.place {
		if at >= 0 {
			totals[at] = min(totals[at], math.MaxInt64-actual[i]) + actual[i]
		}
	}
	return totals
}
