package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/request"
)

// longestHold bounds PolicyConfig.Hold.
const longestHold = maxReserve

// hold is what a Reservation holds, and whether that lasts. Each of its methods is one change of
// that.
type hold struct {
	id    string    // empty if nothing is held
	began time.Time // when it was made, or before

	mu    sync.Mutex
	since time.Time   // when it was last renewed, or before
	gone  uint32      // a bit for each spent charge whose hold has ended
	timer *time.Timer // of the next renewal
	ended bool        // the reservation is settled
}

// start lets renew run after that time, unless the hold has ended.
func (h *hold) start(after time.Duration, renew func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ended:
	case h.timer == nil:
		h.timer = time.AfterFunc(after, renew)
	default:
		h.timer.Reset(after)
	}
}

// lost returns a bit for each spent charge whose hold has ended.
func (h *hold) lost() uint32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gone
}

// renewed takes the outcome of a renewal that began at a time: which charges it found gone, and
// whether it reached all others. It reports whether it is the first to find one of these gone.
func (h *hold) renewed(at time.Time, gone uint32, all bool) (expired bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return false
	}
	if all {
		h.since = at
	}
	expired = gone&^h.gone != 0
	h.gone |= gone
	return expired
}

// end ends the renewals for good, and returns a time before the last one.
func (h *hold) end() (since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	if h.timer != nil {
		h.timer.Stop()
	}
	return h.since
}

// held reports whether units of a charge may be held.
func held(c *request.Charge) bool { return c.HoldFor > 0 }

// holds reports whether the reservation holds a charge. A charge of this process alone, or of
// nobody, is not held.
func (r *Reservation) holds(c *charge) bool {
	return r.hold.id != "" && held(&c.Charge) && !c.local && !c.failed && c.Spent > 0
}

// shortest returns the shortest hold of its charges without those that are gone, or 0.
func (r *Reservation) shortest(gone uint32) (shortest time.Duration) {
	for i := range r.spent {
		c := &r.spent[i]
		if gone&(1<<i) == 0 && r.holds(c) && (shortest == 0 || c.from.policy.cfg.Hold < shortest) {
			shortest = c.from.policy.cfg.Hold
		}
	}
	return shortest
}

// renewLater renews the reservation in the background until it is settled, nothing of it is left,
// or the Gate is closed. The timer does not keep it in memory, so that a reservation that the
// program has dropped is not renewed for ever.
func (r *Reservation) renewLater() {
	if r.hold.id == "" {
		return
	}
	shortest := r.shortest(r.hold.lost())
	if shortest == 0 {
		return
	}
	third := shortest / 3
	jitter := time.Duration(rand.Int64N(int64(third)/5 + 1))
	dropped := weak.Make(r)
	r.hold.start(third-jitter, func() {
		r := dropped.Value()
		if r == nil || r.gate.tasks.Stopped() {
			return
		}
		r.gate.tasks.Go(func() {
			_ = breaker.Safely(r.renew) // a failure is tried again
			r.renewLater()
		})
	})
}

// renew lets each held charge count for its policy's Hold from now.
func (r *Reservation) renew() error {
	start := time.Now()
	before := r.hold.lost()
	gone := uint32(0)
	var charges []*request.Charge
	for i := range r.spent {
		if r.holds(&r.spent[i]) && before&(1<<i) == 0 {
			// The limit that it was charged under reads its state well enough to renew it.
			c := r.spent[i]
			c.Correction = correctionOf(&c.Charge)
			c.Correction.Held = true
			charges = append(charges, &c.Charge)
		}
	}
	var errs []error
	for _, part := range r.gate.parts(charges) {
		ended, err := r.gate.atHolds(context.Background(), algorithm.Renew, r.hold.id, part)
		errs = append(errs, err)
		for i, c := range part {
			if ended&(1<<i) != 0 {
				same := func(o charge) bool { return o.SameState(c) }
				gone |= 1 << slices.IndexFunc(r.spent, same)
			}
		}
	}
	err := errors.Join(errs...)
	if r.hold.renewed(start, gone, err == nil) {
		r.gate.tell(context.Background(), &ReservationEvent{Op: OpHoldExpired})
	}
	return err
}

// Kept reports whether all that the reservation holds under a PolicyConfig.Hold still counts. It renews
// what is held, because only that tells. It is for what acts a while after it has reserved.
func (r *Reservation) Kept() bool {
	return r == nil || r.hold.id == "" || breaker.Safely(r.renew) == nil && r.hold.lost() == 0
}

// atHolds settles or renews holds in one step. It returns a bit for each charge whose hold had
// ended.
func (g *Gate) atHolds(
	ctx context.Context, op algorithm.Operation, hold string, charges []*request.Charge,
) (ended int64, err error) {
	requests := []request.Request{{Terms: algorithm.Terms{Op: op, Hold: hold}, Charges: charges}}
	err = g.send(ctx, requests)
	return requests[0].Verdict, err
}

// unsettled is charges of one hash slot that are to be settled.
type unsettled struct {
	charges []*request.Charge
	// doubtful says that they may have been settled, and that all of them are held.
	doubtful bool
}

// end settles the charges, and ends their holds. It leaves those that are to be settled again if
// that fails: all, if none was settled.
func (r *Reservation) end(ctx context.Context, part *unsettled) error {
	ended := int64(0)
	err := breaker.Safely(func() (err error) {
		ended, err = r.gate.settle(ctx, r.hold.id, part.charges)
		return err
	})
	switch {
	case err != nil && !part.doubtful && !errors.As(err, new(request.Unsent)):
		part.doubtful = true
		// Nothing tells whether a charge that is not held was settled.
		part.charges = slices.DeleteFunc(part.charges, func(c *request.Charge) bool {
			return !c.Correction.Held
		})
		for _, c := range part.charges {
			// A hold that is gone was settled, because it has not ended yet.
			c.Correction.Whole = algorithm.Cost{}
		}
	case ended != 0 && !part.doubtful:
		r.gate.tellReservation(ctx, OpHoldExpired, nil, 0)
	}
	return err
}

// settleAgain settles what could not be settled until Redis has it, or the Gate is closed. What may
// have been settled is sent for as long as its hold, last renewed after since, tells whether it was.
func (r *Reservation) settleAgain(op Op, open []*unsettled, since time.Time) {
	g := r.gate
	ends := since.Add(r.shortest(0))
	settled := true
	first := min(g.cfg.Timeout, time.Second) // a Timeout may be longer than a hold
	for pause := first; len(open) > 0; pause = min(2*pause, time.Second) {
		if !g.tasks.Sleep(pause) {
			return
		}
		start := time.Now()
		open = slices.DeleteFunc(open, func(part *unsettled) bool {
			ctx := context.Background()
			if part.doubtful {
				if ends.Sub(start) < first {
					settled = false
					return true
				}
				ctx = deadline.Until(ctx, ends)
			}
			err := r.end(ctx, part)
			settled = settled && (err == nil || len(part.charges) > 0)
			return err == nil || len(part.charges) == 0
		})
		if len(open) == 0 && settled {
			g.tellReservation(context.Background(), op, nil, time.Since(start))
		}
	}
}

// checkHold returns the fault of a PolicyConfig.Hold.
func checkHold(cfg PolicyConfig) error {
	_, blocks := cfg.Algorithm.(Block)
	switch {
	case cfg.Hold < 0 || cfg.Hold > longestHold:
		return fmt.Errorf("core: PolicyConfig.Hold is %v: it must be between 0 and %v",
			cfg.Hold, longestHold)
	case cfg.Hold > 0 && cfg.Hold < time.Millisecond:
		return fmt.Errorf("core: PolicyConfig.Hold is %v: it must be at least a millisecond", cfg.Hold)
	case cfg.Hold > 0 && blocks:
		return errors.New("core: PolicyConfig.Hold is set, and the strikes of a Block are not held")
	}
	return nil
}
