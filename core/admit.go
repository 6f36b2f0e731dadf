package core

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/request"
)

func init() {
	hub.Of = func(gate any) *hub.Hub {
		if g, ok := gate.(*Gate); ok && g != nil && g.store != nil {
			return &g.lent
		}
		return nil
	}
	hub.CheckName = checkName
	hub.KeyAt = func(path string) any { return keyAt(path) }
	hub.Admit = admit
	hub.Mark = mark
	hub.Answer = answer
	hub.Forgive = forgive
	hub.Cool = cool
	hub.Reason = func(r Result) int64 { return int64(r.reason) }
	hub.Give = (*Gate).giveUnits
	hub.State = func(gate any, p any, planned bool) {
		if g, p := gate.(*Gate), p.(*Policy); g != nil && p != nil && p.own != nil {
			if planned {
				p.planned.Store(true)
			}
			g.stated.add([]Charge{{Policy: p}})
		}
	}
	hub.StateNothing = func(gate any) { gate.(*Gate).stated = nil }
	hub.Varies = func(p *Policy) bool { return p.varies() }
	hub.Suffix = func(p *Policy) string { return p.own.kind.Suffix }
}

// admit is hub.Admit.
func admit(
	ctx context.Context, g *Gate, slot *request.Slot, outermost string, d *Decision, charges []Charge,
	take func(paid *Reservation, cause error) bool,
) error {
	began, known := g.known(ctx, algorithm.Decide, charges, d)
	if known {
		return nil
	}
	if err := g.lent.Keeper.Begin(); err != nil {
		return err
	}
	defer g.lent.Keeper.End()
	p := newInquiry(algorithm.Decide, 0, began)
	defer p.release()
	p.whole[0].Receipts = true
	p.holds = true
	if slot.Request.Waiters == 0 && g.takesSlot(charges, outermost) {
		p.whole[0].Slot = slot
	}
	var paid *Reservation
	over := false
	defer func() {
		if !over { // Observe, OnQueue or a hook of the client panics
			g.undo(ctx, p, slot, paid)
		}
	}()
	err := g.run(ctx, p, d, charges)
	if slot.Sent && (err != nil || !slot.Answered && p.cause != nil) {
		slot.Abandon(slot) // it may have been granted, whatever became of the caller
	}
	if err != nil || !d.Allowed {
		over = true
		return err
	}
	paid = g.reservation(p)
	var cause error
	if p.whole[0].Slot != nil && !errors.Is(p.cause, ErrLedger) { // Redis was asked for the slot too
		cause = p.cause
	}
	taken := take(paid, cause)
	over = true
	if !taken {
		g.refundWithoutSlot(ctx, p, paid)
		p.results(d, charges, g.source)
	}
	return nil
}

// undo gives back what was taken, which nobody gets.
func (g *Gate) undo(ctx context.Context, p *inquiry, slot *request.Slot, paid *Reservation) {
	if slot.Sent {
		slot.Abandon(slot)
	}
	if paid == nil && slices.ContainsFunc(p.wire, func(c charge) bool { return c.Spent > 0 }) {
		paid = g.reservation(p)
	}
	_ = paid.Cancel(ctx) // on failure it stays spent
}

// refundWithoutSlot refunds charges that were spent for a request without a slot. The decision
// denies then, although all of its results fit.
func (g *Gate) refundWithoutSlot(ctx context.Context, p *inquiry, paid *Reservation) {
	_ = paid.Cancel(ctx) // on failure it stays spent
	p.admitted = false
	for i := range p.wire {
		c := &p.wire[i]
		c.Held = max(0, c.Held-c.Spent)
		c.Spent = 0
	}
}

// mark is hub.Mark.
func mark(ctx context.Context, g *Gate, p *Policy, key Key, answer []byte) error {
	done := &Blocklist{g, p}
	_, err := done.send(ctx, key, func(r *request.Request, b *algorithm.Block) {
		r.Op = algorithm.Decide
		r.Charges[0].Cost = b.Cost(1)
		r.Answer, r.AnswerFor = answer, b.Most().Microseconds()
	})
	return err
}

// answer is hub.Answer.
func answer(ctx context.Context, g *Gate, p *Policy, key Key) ([]byte, error) {
	if err := check([]Charge{{Policy: p, Key: key}}); err != nil {
		return nil, err
	}
	var c charge
	c.at(key, p.own, nil)
	return g.store.Answer(g.bound(ctx), &c.Charge)
}

// forgive is hub.Forgive.
func forgive(ctx context.Context, g *Gate, p *Policy, key Key) error {
	done := &Blocklist{g, p}
	_, err := done.send(ctx, key, func(r *request.Request, b *algorithm.Block) {
		r.Op = algorithm.Give
		r.Charges[0].Cost = b.Cost(1)
		r.Charges[0].Reply = []int64{algorithm.LastBlock}
	})
	return err
}

// cool is hub.Cool.
func cool(
	ctx context.Context, g *Gate, p *Policy, key Key, growth Block, c hub.Cooldown,
) (rest time.Duration, err error) {
	grown, err := growth.compile()
	if err != nil {
		return 0, err
	}
	limit := grown.limit.(*algorithm.Block)
	cost := limit.Since(c.Age, c.Reason)
	if c.For > 0 {
		cost = limit.ByHand(c.For, c.Reason)
	}
	done := &Blocklist{g, p}
	told, err := done.send(ctx, key, func(r *request.Request, _ *algorithm.Block) {
		r.Op = algorithm.Force
		r.Charges[0].Limit = limit
		r.Charges[0].Cost = cost
	})
	if err != nil {
		return 0, err
	}
	rest, reason := limit.Rest(told.Reply, cost)
	heed(g, p, key, rest, reason)
	return rest, nil
}

// heed has this process heed a block that it has learnt of while Redis does not answer.
func heed(g *Gate, p *Policy, key Key, rest time.Duration, reason int64) {
	if rest == 0 || g.source == SourceMemory { // a Gate in memory has blocked the key itself
		return
	}
	b := p.own.current().(*algorithm.Block)
	var c charge
	c.at(key, p.own, b)
	c.Cost = b.ByHand(rest, reason)
	requests := []request.Request{{Op: algorithm.Force, Charges: []*request.Charge{&c.Charge}}}
	_ = g.local.Decide(context.Background(), requests) // memory does not fail
}

// heedCooldowns is heed for the cooldowns that deny.
func (g *Gate) heedCooldowns(d *Decision, charges []Charge) {
	for i, r := range d.Results() {
		if r.reason > 0 && !r.Allowed && r.Source == SourceRedis {
			heed(g, r.Policy, charges[i].Key, r.RetryAfter, int64(r.reason))
		}
	}
}
