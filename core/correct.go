package core

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/request"
)

// correct brings each spent charge to that many units, in one round trip for each hash slot. It
// returns the charges that are to be settled again, because that failed.
func (r *Reservation) correct(ctx context.Context, units []int64) (open []*unsettled, err error) {
	g := r.gate
	var here, there []*request.Charge
	for i := range r.spent {
		c := r.spent[i]
		holds := r.holds(&c)
		if c.failed || !c.Fits || c.Spent == units[i] && !holds {
			continue // nobody counted it, or it is a shadow without room
		}
		c.correct(units[i])
		c.Correction.Held = holds
		if c.local {
			here = append(here, &c.Charge)
		} else {
			there = append(there, &c.Charge)
		}
	}
	_ = g.local.Decide(ctx, corrections(here)) // memory does not fail
	var errs []error
	for _, charges := range g.parts(there) {
		part := &unsettled{charges: charges}
		err := r.end(ctx, part)
		errs = append(errs, err)
		if err != nil && len(part.charges) > 0 {
			open = append(open, part)
		}
	}
	return open, errors.Join(errs...)
}

// correct computes the correction that brings a charge to that many units.
func (c *charge) correct(units int64) {
	spent := c.Limit
	k := correctionOf(&c.Charge)
	if !c.local {
		c.Limit = c.from.current() // another period may have begun
	}
	k.Whole = c.Limit.Cost(units)
	if k.Refund = c.Spent > units; k.Refund {
		k.By = algorithm.Back(spent, c.Limit, c.Spent-units)
	} else {
		k.By = c.Limit.Cost(units - c.Spent)
	}
	c.Correction = k
}

// correctionOf returns the correction of a charge, as far as it follows from what was spent under
// the charge's limit.
func correctionOf(c *request.Charge) *algorithm.Correction {
	return &algorithm.Correction{
		Units: c.Spent, Spent: c.Limit.Cost(c.Spent), Denominator: c.Limit.Denominator(),
	}
}

// settle sends the corrections of charges in one step, and ends their holds. It returns a bit for each
// charge whose hold had ended.
func (g *Gate) settle(
	ctx context.Context, hold string, charges []*request.Charge,
) (ended int64, err error) {
	if slices.ContainsFunc(charges, func(c *request.Charge) bool { return c.Beside() }) {
		return g.atHolds(ctx, algorithm.Settle, hold, charges)
	}
	if requests := corrections(charges); len(requests) > 0 {
		err = g.send(ctx, requests)
	}
	return 0, err
}

// corrections refunds or forces each charge. There is no request for a refund that is rounded down to
// nothing.
func corrections(charges []*request.Charge) []request.Request {
	requests := []request.Request{
		{Terms: algorithm.Terms{Op: algorithm.Force}},
		{Terms: algorithm.Terms{Op: algorithm.Give}},
	}
	for _, c := range charges {
		to := &requests[0].Charges
		if c.Correction.Refund {
			to = &requests[1].Charges
		}
		if by := c.Correction.By; by != (algorithm.Cost{}) {
			corrected := *c
			corrected.Cost = by
			*to = append(*to, &corrected)
		}
	}
	return slices.DeleteFunc(requests, func(r request.Request) bool { return len(r.Charges) == 0 })
}

// giveBack refunds in reverse order what the requests spent and the decision does not: all of it,
// or of an admitted SpendUpTo what is above the final bound. It is sent once, like every script.
// What cannot be refunded stays spent, so that the others never see more than the limit.
func (g *Gate) giveBack(ctx context.Context, p *inquiry, requests []request.Request) {
	hold := p.whole[0].Hold
	for _, r := range slices.Backward(requests) {
		var back []*request.Charge
		for _, c := range r.Charges {
			keep := int64(0)
			if p.admitted {
				keep = c.Spent
				if p.op == algorithm.AtMost {
					keep = min(keep, c.Units*p.whole[0].Bound)
				}
			}
			corrected := *p.of(c)
			if c.Spent == keep || corrected.local {
				continue
			}
			corrected.correct(keep)
			corrected.Correction.Held = hold != "" && held(c)
			back = append(back, &corrected.Charge)
			c.Spent = keep
		}
		if len(back) > 0 {
			p.whole[0].Buffer = nil // a late refund keeps parts of it
			g.give(ctx, hold, back)
		}
	}
}

// give sends a refund within the decision's deadline, whatever became of the caller. If no time is
// left, it does not keep the caller waiting.
func (g *Gate) give(ctx context.Context, hold string, charges []*request.Charge) {
	end, bounded := ctx.Deadline()
	late := bounded && time.Until(end) <= 0
	if late || !bounded { // in memory it is not
		end = time.Now().Add(g.cfg.Timeout)
	}
	send := func() {
		detached := context.WithoutCancel(ctx)
		err := breaker.Safely(func() error {
			_, err := g.settle(deadline.Until(detached, end), hold, charges)
			return err
		})
		if err != nil {
			g.tellReservation(detached, OpRefundFailed, err, 0)
		}
	}
	if late && !g.closed.Load() { // nothing waits for a task that begins on a closed Gate
		g.tasks.Go(send)
		return
	}
	send()
}
