package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/request"
)

// ErrHoldExpired is the error of a Reservation.Renew that came too late: what the reservation spent
// under some policy has gone back after PolicyConfig.Hold.
var ErrHoldExpired = errors.New("core: the hold has expired")

// longestHold bounds PolicyConfig.Hold.
const longestHold = maxReserve

// hold is what keeps charges spent for a while.
type hold struct {
	id string // empty if nothing is held

	mu    sync.Mutex
	since time.Time   // when it was last renewed, or before
	gone  uint32      // a bit for each spent charge whose hold has ended
	timer *time.Timer // of Keep
	ended bool
}

// held reports whether units of a charge may be held.
func held(c *request.Charge) bool { return c.HoldFor > 0 }

// holds reports whether the reservation holds a charge. A charge of this process alone, or of
// nobody, is not held.
func (r *Reservation) holds(c *charge) bool {
	return r.hold.id != "" && held(&c.Charge) && !c.local && !c.failed && c.Spent > 0
}

// Renew prolongs what the reservation holds: each charge under a policy with a PolicyConfig.Hold
// counts for that time from now. After Settle and Cancel it does nothing. The error is
// ErrHoldExpired if a charge has gone back; the others are renewed. Other errors are those of
// Decide, and leave unknown whether the reservation was renewed.
func (r *Reservation) Renew(ctx context.Context) error {
	if r == nil || r.hold.id == "" {
		return nil
	}
	charges := r.alive()
	start, before := time.Now(), r.hold.lost()
	var errs []error
	for _, part := range r.gate.parts(charges) {
		verdict, err := r.atHolds(ctx, algorithm.Renew, part)
		errs = append(errs, err)
		for i, c := range part {
			if verdict&(1<<i) != 0 {
				r.hold.lose(slices.IndexFunc(r.spent, func(o charge) bool { return o.SameState(c) }))
			}
		}
	}
	err := errors.Join(errs...)
	if r.hold.over() {
		return nil
	}
	if err == nil {
		r.hold.renewed(start)
	}
	if now := r.hold.lost(); now != 0 {
		err = errors.Join(err, ErrHoldExpired)
		if now != before {
			r.gate.tellReservation(ctx, OpHoldExpired, ErrHoldExpired, 0)
		}
	}
	return err
}

// alive returns the charges whose holds may be renewed. The limit that they were charged under reads
// their state well enough for that.
func (r *Reservation) alive() (charges []*request.Charge) {
	gone := r.hold.lost()
	for i := range r.spent {
		c := r.spent[i]
		if r.holds(&c) && gone&(1<<i) == 0 {
			c.Correction = correctionOf(&c.Charge)
			c.Correction.Held = true
			charges = append(charges, &c.Charge)
		}
	}
	return charges
}

// Keep renews the reservation in the background until it is settled or cancelled, has expired, or
// the Gate is closed. Semaphore.Admit keeps what it spent as long as its slot is held. Keep does
// nothing if nothing is held. It may be called again.
func (r *Reservation) Keep() {
	if r == nil || r.hold.id == "" {
		return
	}
	shortest := r.shortest()
	r.hold.mu.Lock()
	defer r.hold.mu.Unlock()
	if shortest > 0 && r.hold.timer == nil && !r.hold.ended {
		r.hold.timer = time.AfterFunc(renewIn(shortest), func() { r.renewAgain(shortest) })
	}
}

// shortest returns the shortest hold of its charges, or 0.
func (r *Reservation) shortest() (shortest time.Duration) {
	for i := range r.spent {
		if c := &r.spent[i]; r.holds(c) && (shortest == 0 || c.policy.hold < shortest) {
			shortest = c.policy.hold
		}
	}
	return shortest
}

// renewIn returns a third of a hold, with jitter.
func renewIn(hold time.Duration) time.Duration {
	third := hold / 3
	return third - time.Duration(rand.Int64N(int64(third)/5+1))
}

func (r *Reservation) renewAgain(hold time.Duration) {
	g := r.gate
	if g.tasks.Stopped() {
		return
	}
	g.tasks.Go(func() {
		_ = safely(func() error { return r.Renew(context.Background()) }) // a failure is tried again
		if len(r.alive()) == 0 {
			return
		}
		r.hold.mu.Lock()
		defer r.hold.mu.Unlock()
		if r.hold.timer != nil {
			r.hold.timer.Reset(renewIn(hold))
		}
	})
}

// safely calls f. A panic, as in a hook of the client, is an error.
func safely(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("core: panic: %v", p)
		}
	}()
	return f()
}

// end ends Keep for good.
func (h *hold) end() {
	h.rest()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
}

// rest ends Keep until it is called again.
func (h *hold) rest() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
}

// renewed says that the hold was renewed after that time.
func (h *hold) renewed(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since = at
}

// lose says that the hold of a spent charge has ended.
func (h *hold) lose(i int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone |= 1 << i
}

// lost returns a bit for each spent charge whose hold has ended.
func (h *hold) lost() uint32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gone
}

// lastRenewed returns when it was last renewed, or before.
func (h *hold) lastRenewed() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since
}

// over reports whether the reservation is settled.
func (h *hold) over() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}

// atHolds settles or renews holds in one step. It returns a bit for each charge whose hold had ended.
func (r *Reservation) atHolds(
	ctx context.Context, op algorithm.Operation, charges []*request.Charge,
) (ended int64, err error) {
	requests := []request.Request{{Op: op, Hold: r.hold.id, Charges: charges}}
	err = r.gate.send(ctx, requests)
	return requests[0].Verdict, err
}

// unsettled is charges of one hash slot that are to be settled.
type unsettled struct {
	charges []*request.Charge
	// doubtful says that they may have been settled.
	doubtful bool
}

// end settles the charges, and ends their holds.
func (r *Reservation) end(ctx context.Context, part *unsettled) error {
	if len(part.charges) == 0 {
		return nil
	}
	ended, err := r.atHolds(ctx, algorithm.Settle, part.charges)
	switch {
	case err != nil && !part.doubtful && !errors.As(err, new(request.Unsent)):
		part.doubtful = true
		// Nothing tells whether a charge that is not held was settled.
		part.charges = slices.DeleteFunc(part.charges, func(c *request.Charge) bool {
			return !c.Correction.Held
		})
		for _, c := range part.charges {
			// A hold that is gone was settled, because it has not ended yet.
			c.Correction.Whole = [2]algorithm.Cost{}
		}
	case ended != 0 && !part.doubtful:
		r.gate.tellReservation(ctx, OpHoldExpired, nil, 0)
	}
	return err
}

// settleAgain settles what could not be settled, until the holds may have ended or the Gate is
// closed.
func (r *Reservation) settleAgain(open []*unsettled) {
	g := r.gate
	ends := r.hold.lastRenewed().Add(r.shortest())
	for pause := g.timeout; len(open) > 0; pause = min(2*pause, time.Second) {
		if time.Until(ends) < pause+g.timeout || !g.tasks.Sleep(pause) {
			return
		}
		start := time.Now()
		open = slices.DeleteFunc(open, func(part *unsettled) bool {
			return safely(func() error { return r.end(context.Background(), part) }) == nil
		})
		if len(open) == 0 {
			g.tellReservation(context.Background(), OpSettle, nil, time.Since(start))
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
