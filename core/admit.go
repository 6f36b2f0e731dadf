package core

import (
	"context"
	"errors"
	"slices"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/request"
)

// Admit decides charges and takes a slot, both or neither. If the store can, it does both in one step
// and answers the slot. Then, or if the charges are spent and the slot is to be taken alone, Admit
// calls take with what was spent, and with the error by which the store failed, if it did. It refunds
// the charges unless take returns true. It leaves the Decision in d, which is zero before.
func (inside) Admit(
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
