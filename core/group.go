package core

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// group splits the plan into one request for each outermost part of its keys, because a cluster decides only keys of
// one slot in one script. Those most likely to deny come first: those whose policies denied last.
func (p *plan) group() []request {
	type group struct {
		denied  int64
		charges []charge
	}
	var groups []group
	for _, charges := range bySlot(p.wire) {
		g := group{charges: charges}
		for _, c := range charges {
			g.denied = max(g.denied, c.policy.lastDenial.Load())
		}
		groups = append(groups, g)
	}
	slices.SortStableFunc(groups, func(a, b group) int { return cmp.Compare(b.denied, a.denied) })

	requests := make([]request, len(groups))
	wire := make([]charge, 0, len(p.wire)) // never grows: the requests hold parts of it
	for i, g := range groups {
		from := len(wire)
		wire = append(wire, g.charges...)
		requests[i] = request{op: p.op, charges: wire[from:]}
	}
	p.wire = wire
	for i, a := range p.asked {
		if p.place[i] >= 0 {
			p.place[i] = int8(slices.IndexFunc(wire, func(c charge) bool { return c.policy == a.Policy && c.key == a.Key }))
		}
	}
	return requests
}

// together says whether all keys of the plan have the same outermost part.
func (p *plan) together() bool {
	for i := range p.wire {
		if p.wire[i].key.outermost() != p.wire[0].key.outermost() {
			return false
		}
	}
	return true
}

// bySlot parts charges by the outermost parts of their keys.
func bySlot(charges []charge) (groups [][]charge) {
	for _, c := range charges {
		i := slices.IndexFunc(groups, func(g []charge) bool { return g[0].key.outermost() == c.key.outermost() })
		if i < 0 {
			i = len(groups)
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], c)
	}
	return groups
}

// giveBack returns in reverse order what the requests spent and the decision does not: all of it, or with an
// admitted AtMost what is above the final bound. It is sent once, like every script. What cannot be
// given back stays spent, so that it is never more than the limit that others see.
func (g *Gate) giveBack(ctx context.Context, p *plan, requests []request, admitted bool) {
	for i := len(requests) - 1; i >= 0; i-- {
		give := request{op: algorithmGive}
		for j := range requests[i].charges {
			c := &requests[i].charges[j]
			keep := int64(0)
			if admitted {
				keep = c.spent
				if p.op == algorithmAtMost {
					keep = min(keep, c.units*p.bound)
				}
			}
			if c.spent == keep || c.local {
				continue
			}
			back := *c
			back.cost = c.limit.Cost(c.spent - keep)
			give.charges = append(give.charges, back)
			c.spent = keep
		}
		if len(give.charges) > 0 {
			g.give(ctx, []request{give})
		}
	}
}

// give sends a give-back within the decision's deadline, whatever became of the caller. Where no time is left, the
// caller is not kept waiting.
func (g *Gate) give(ctx context.Context, requests []request) {
	detached := context.WithoutCancel(ctx)
	send := func(deadline time.Time) {
		bounded, cancel := context.WithDeadline(detached, deadline)
		defer cancel()
		if err := g.ask(bounded, detached, requests); err != nil && g.observe != nil {
			g.observe(detached, Event{Operation: string(algorithmGive), Err: err})
		}
	}
	deadline, ok := ctx.Deadline()
	if !ok { // in memory
		deadline = time.Now().Add(g.deadlines.timeout)
	}
	if time.Until(deadline) > 0 {
		send(deadline)
		return
	}
	if g.closed.Load() { // nobody waits for what begins in the background now
		send(time.Now().Add(g.deadlines.timeout))
		return
	}
	g.tasks.run(func() { send(time.Now().Add(g.deadlines.timeout)) })
}
