package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
)

// decide leaves the outcome in d, a zero Decision, which is too large to be copied from hand to hand.
func (g *Gate) decide(ctx context.Context, d *Decision, op algorithm.Operation, bound int64, charges []Charge) (granted int64, err error) {
	if op == algorithmDecide && g.known(ctx, charges, d) {
		return 0, nil
	}
	p := plans.Get().(*plan)
	defer p.free()
	if err := g.run(ctx, p, d, op, bound, charges); err != nil || !d.Allowed {
		return 0, err
	}
	return p.bound, nil
}

// run decides and reports. The plan holds what came of each charge.
func (g *Gate) run(ctx context.Context, p *plan, d *Decision, op algorithm.Operation, bound int64, charges []Charge) error {
	var start time.Time
	if g.observe != nil {
		start = time.Now()
	}
	p.began = g.cache.now()
	err := g.admit(ctx, p, d, op, bound, charges)
	if err == nil || errors.Is(err, ErrMisconfigured) {
		p.results(d)
		g.cache.keep(p, d)
	}
	g.report(ctx, op, d, err, start)
	return err
}

// report tells who observes of a decision.
func (g *Gate) report(ctx context.Context, op algorithm.Operation, d *Decision, err error, start time.Time) {
	if g.observe != nil {
		seen := *d // so that d itself stays off the heap
		g.observe(ctx, Event{Operation: string(op), Decision: &seen, Err: err, Took: time.Since(start)})
	}
}

// admit runs the decision and leaves whether it admits in d.
func (g *Gate) admit(ctx context.Context, p *plan, d *Decision, op algorithm.Operation, bound int64, charges []Charge) error {
	if g.store == nil || g.closed.Load() {
		return ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("core: %w", err)
	}
	if err := p.lay(ctx, op, charges); err != nil {
		return err
	}
	if bound == unequal {
		return fmt.Errorf("%w: AtMost of different costs", ErrCharge)
	}
	p.bound, p.source = bound, g.store.source()
	d.Source = p.source
	if len(p.wire) == 0 {
		d.Allowed = !p.denied
		return nil
	}
	if op == algorithmAtMost {
		p.bound = min(bound, algorithm.MaxUnits)
		for i := range p.wire {
			if c := &p.wire[i]; !c.policy.shadow {
				p.bound = min(p.bound, c.limit.Capacity())
			}
		}
	}
	if g.circuit == nil {
		return g.ordered(ctx, ctx, p, d)
	}
	bounded, cancel := g.deadlines.bound(ctx)
	defer cancel()
	return g.ordered(bounded, ctx, p, d)
}

// ordered asks for the plan's requests one after the other. After a denial the rest is only peeked at, so that the
// decision names all that stand in the way.
func (g *Gate) ordered(ctx, caller context.Context, p *plan, d *Decision) error {
	p.whole[0].op, p.whole[0].charges = p.op, p.wire
	requests := p.whole[:]
	if g.perSlot && !p.together() {
		requests = p.group()
	}
	admitted := !p.denied
	var cause error
	for i := range requests {
		r := &requests[i]
		r.bound, r.receipts = p.bound, p.keeps || len(requests) > 1
		if !admitted {
			r.op = algorithmPeek
		} else {
			r.slot = p.slot
			if p.slot != nil {
				p.slot.sent = true
			}
		}
		err := g.ask(ctx, caller, requests[i:i+1])
		switch {
		case err == nil:
			admitted = admitted && r.admitted()
			if admitted && p.op == algorithmAtMost {
				p.bound = r.verdict
			}
		case ended(caller) != nil:
			g.giveBack(ctx, p, requests[:i], false)
			d.Source = SourceNone
			return fmt.Errorf("core: %w", ended(caller))
		default:
			if cause == nil || errors.Is(err, ErrMisconfigured) {
				cause = err
			}
			for j := range r.charges {
				admitted = admitted && r.charges[j].mode(errors.Is(err, ErrMisconfigured)) != Closed
			}
		}
	}
	if cause != nil {
		admitted = g.fail(ctx, p, d, cause, admitted)
	}
	if len(requests) > 1 {
		g.giveBack(ctx, p, requests, admitted)
	}
	d.Allowed = admitted && !p.slot.refused()
	if g.perSlot && !admitted && p.op != algorithmPeek {
		for i := range p.wire {
			if c := &p.wire[i]; c.answered && !c.fits {
				c.policy.lastDenial.Store(g.denials.Add(1))
			}
		}
	}
	if !admitted && errors.Is(cause, ErrMisconfigured) {
		return cause
	}
	return nil
}
