package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/request"
)

// Decide spends all charges or none. A denial is a Decision and no error.
//
// The error is nil if a failure mode decided; Decision.Cause says why. Otherwise it wraps the error
// of a ctx that has ended (the charges may be spent then), [ErrCharge], [ErrKey],
// [ErrMisconfigured] or [ErrClosed]. With any error the Decision denies.
//
// On a Redis Cluster, one script decides the charges whose keys share the outermost part. Decide
// sends the scripts of different parts one after the other, and refunds the earlier charges if a
// later script denies. Until then other callers see them as spent. If the refund fails, they stay
// spent.
func (g *Gate) Decide(ctx context.Context, charges ...Charge) (d Decision, err error) {
	_, err = g.decide(ctx, &d, algorithm.Decide, 0, charges)
	return d, err
}

// Peek returns the Decision of Decide and spends nothing.
func (g *Gate) Peek(ctx context.Context, charges ...Charge) (d Decision, err error) {
	_, err = g.decide(ctx, &d, algorithm.Peek, 0, charges)
	return d, err
}

// SpendUpTo spends every charge up to n times, as often as all of them fit, and returns how often
// that was. The Decision is allowed if that is above 0. Its waits are those for one time. With a Cost
// of 1 it takes n units, or as many as there are. If n is 0, it is a Peek whose Decision is allowed.
func (g *Gate) SpendUpTo(
	ctx context.Context, n int64, charges ...Charge,
) (granted int64, d Decision, err error) {
	if n < 0 {
		return 0, d, fmt.Errorf("%w: SpendUpTo %d times", ErrCharge, n)
	}
	if n == 0 {
		d, err = g.Peek(ctx, charges...)
		d.Allowed = err == nil
		return 0, d, err
	}
	granted, err = g.decide(ctx, &d, algorithm.AtMost, n, charges)
	if !d.Allowed {
		granted = 0
	}
	return granted, d, err
}

// decide leaves the outcome in d, a zero Decision. A Decision is too large to be copied from
// function to function.
func (g *Gate) decide(
	ctx context.Context, d *Decision, op algorithm.Operation, bound int64, charges []Charge,
) (granted int64, err error) {
	began, known := g.known(ctx, op, charges, d)
	if known {
		return 0, nil
	}
	p := newInquiry(op, bound, began)
	defer p.release()
	err = g.run(ctx, p, d, charges)
	return p.whole[0].Bound, err
}

// run decides, fills in the results, remembers a denial, and tells the observer. What the store
// made of each charge stays in the inquiry.
func (g *Gate) run(ctx context.Context, p *inquiry, d *Decision, charges []Charge) error {
	var start time.Time
	if g.cfg.Observe != nil {
		start = time.Now()
	}
	err := g.ask(ctx, p, charges)
	if err == nil || errors.Is(err, ErrMisconfigured) {
		p.results(d, charges, g.source)
		if !d.Allowed {
			g.cache.keep(p, d, charges)
			g.heedCooldowns(d, charges)
		}
	}
	if g.cfg.Observe != nil {
		g.watch(p, d, charges, start)
		g.tellDecision(ctx, p.op, d, charges[:len(p.place)], err, start)
	}
	return err
}

// ask lays out the charges, and asks the store for what it decides.
func (g *Gate) ask(ctx context.Context, p *inquiry, charges []Charge) error {
	if g.isClosed() {
		return ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("core: %w", err)
	}
	if err := p.lay(charges); err != nil {
		return err
	}
	if p.op != algorithm.Peek { // a tool peeks under policies of other programs
		g.stated.add(charges)
	}
	r := &p.whole[0]
	if len(r.Charges) == 0 {
		return nil
	}
	if p.beside || p.op == algorithm.AtMost {
		g.prepare(p)
	}
	if r.Slot != nil {
		return g.askWithSlot(ctx, p)
	}
	return g.askSteps(ctx, p)
}

// prepare completes a request on states with holds or adjustments, and one of SpendUpTo.
func (g *Gate) prepare(p *inquiry) {
	r := &p.whole[0]
	if p.holds && r.Holds() {
		r.Hold = g.holdID()
		p.heldSince = time.Now()
	}
	if p.op == algorithm.AtMost {
		r.Bound = min(r.Bound, algorithm.MaxUnits)
		for i := range p.wire {
			c := &p.wire[i]
			if c.Shadow || c.Units == 0 {
				continue
			}
			most := c.Limit.Capacity()
			if c.Adjusts {
				most += algorithm.MaxCount // of its raises, which the store knows
			}
			r.Bound = min(r.Bound, max(1, most/c.asked)) // Lua 5.4 would wrap a larger product
		}
	}
}

// askWithSlot asks for a slot with the charges, and denies a request without one. If its caller is
// to wait for one, nothing was spent, and the charges are before the wait.
func (g *Gate) askWithSlot(ctx context.Context, p *inquiry) error {
	slot := p.whole[0].Slot
	slot.Sent = p.admitted
	err := g.askSteps(ctx, p)
	if err != nil || p.whole[0].Slot == nil { // the store was not asked for it
		return err
	}
	if slot.Queues() {
		p.whole[0].Slot = nil
		for i := range p.wire {
			p.wire[i].Reply = nil
		}
		return g.askSteps(ctx, p)
	}
	p.admitted = p.admitted && !slot.Refused()
	return nil
}

// askSteps asks for the charges in one step if it can, and lets the failure modes decide what the
// store does not answer.
func (g *Gate) askSteps(ctx context.Context, p *inquiry) error {
	whole := p.whole[:]
	if whole[0].Hold != "" || g.cluster {
		return g.askParts(ctx, p)
	}
	err := g.askOne(ctx, ctx, p, whole)
	if err == nil && p.cause != nil {
		err = g.conclude(ctx, p, whole)
	}
	return err
}

// askOne asks for one request, and takes the answer. Its error is that of the caller's context.
func (g *Gate) askOne(ctx, caller context.Context, p *inquiry, one []request.Request) error {
	r := &one[0]
	if !p.admitted {
		r.Op = algorithm.Peek
		r.Slot = nil
	}
	within, err := ctx, error(nil)
	if p.beside {
		within, err = g.raise(ctx, p, r)
	}
	switch {
	case err != nil:
	case p.op == algorithm.Reserve:
		err = g.send(within, one)
	default: // what does not reserve lifts no denial
		err = g.store.Decide(within, one)
	}
	if err == nil && r.Unseeded {
		err = g.askLedgers(ctx, caller, p, one)
	}
	if err != nil {
		return p.fails(caller, r, err)
	}
	p.admitted = p.admitted && r.Admitted()
	if p.admitted && p.op == algorithm.AtMost {
		p.whole[0].Bound = r.Verdict
	}
	return nil
}

// fails takes the failure of a request: a Closed policy denies then. It returns the error of the
// caller's context if that has ended.
func (p *inquiry) fails(caller context.Context, r *request.Request, err error) error {
	if ended := deadline.Err(caller); ended != nil {
		return fmt.Errorf("core: %w", ended)
	}
	if p.cause == nil || errors.Is(err, ErrMisconfigured) || errors.Is(p.cause, ErrLedger) {
		p.cause = err
	}
	if r.Slot != nil && errors.As(err, new(request.Unsent)) {
		r.Slot.Sent = false
	}
	for _, c := range r.Charges {
		p.admitted = p.admitted && p.of(c).mode(err) != FailClosed
	}
	return nil
}

// conclude ends a decision that took several steps, or that the store did not answer.
func (g *Gate) conclude(ctx context.Context, p *inquiry, requests []request.Request) error {
	if p.cause != nil {
		g.fail(ctx, p)
	}
	g.giveBack(ctx, p, requests)
	if !p.admitted && errors.Is(p.cause, ErrMisconfigured) {
		return p.cause
	}
	return nil
}

// send asks the store for requests that may lift denials. An outage is an error that wraps neither
// the error of the caller's context nor ErrMisconfigured.
func (g *Gate) send(ctx context.Context, requests []request.Request) error {
	var keys []uint64
	for i := range requests {
		for _, c := range requests[i].Charges {
			if lifts(&requests[i], c) {
				keys = append(keys, c.StateHash())
			}
		}
	}
	defer g.cache.lifting(keys...)()
	return g.store.Decide(ctx, requests)
}
