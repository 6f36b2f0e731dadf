package core

import (
	"context"
	"fmt"
	"slices"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/request"
)

// askParts is ask for charges that are held, and for those that one step may not decide: it asks for
// one part after the other. After a denial it only peeks at the other parts, so that the decision
// names every policy that denies.
func (g *Gate) askParts(caller context.Context, p *inquiry) error {
	ctx := caller
	whole := &p.whole[0]
	if whole.Hold != "" { // a charge that nobody knows of would count for its Hold
		ctx = deadline.Keep(caller)
	}
	requests := p.whole[:]
	if parts := g.parts(whole.Charges); len(parts) > 1 {
		ctx = g.bound(ctx) // all of them, where the store bounds each
		requests = nil
		for _, part := range parts {
			terms := algorithm.Terms{Op: p.op, Receipts: true, Hold: whole.Hold}
			requests = append(requests, request.Request{Terms: terms, Charges: part})
		}
	}
	var err error
	asked := 0
	for ; err == nil && asked < len(requests); asked++ {
		requests[asked].Bound = whole.Bound
		err = g.askOne(ctx, caller, p, requests[asked:asked+1])
	}
	if err == nil && whole.Hold != "" && caller.Err() != nil {
		ctx = g.bound(ctx)
		err = fmt.Errorf("core: %w", caller.Err())
	}
	if err != nil {
		p.admitted = false
		g.giveBack(ctx, p, requests[:asked])
		return err
	}
	return g.conclude(ctx, p, requests)
}

// parts returns the charges that each step decides. On a cluster one script decides only keys of one
// hash slot.
func (g *Gate) parts(charges []*request.Charge) (parts [][]*request.Charge) {
	for _, c := range charges {
		i := slices.IndexFunc(parts, func(part []*request.Charge) bool {
			return !g.cluster || part[0].Outermost() == c.Outermost()
		})
		if i < 0 {
			i = len(parts)
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], c)
	}
	return parts
}

// takesSlot reports whether the store can decide the charges and take a slot below that outermost
// part in one step.
func (g *Gate) takesSlot(charges []Charge, outermost string) bool {
	return g.source == SourceRedis && (!g.cluster || !slices.ContainsFunc(charges, func(c Charge) bool {
		return c.Key.in.Outermost() != outermost
	}))
}
