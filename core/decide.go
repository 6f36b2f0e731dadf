package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
// that was. The Decision is allowed if that is above 0, or n is 0. Its waits are those for one
// time. With a Cost of 1 it takes n units, or as many as there are.
func (g *Gate) SpendUpTo(
	ctx context.Context, n int64, charges ...Charge,
) (granted int64, d Decision, err error) {
	if n < 0 {
		return 0, d, fmt.Errorf("%w: SpendUpTo %d times", ErrCharge, n)
	}
	granted, err = g.decide(ctx, &d, algorithm.AtMost, n, charges)
	return granted, d, err
}

// decide leaves the outcome in d, a zero Decision. A Decision is too large to be copied from
// function to function.
func (g *Gate) decide(
	ctx context.Context, d *Decision, op algorithm.Operation, bound int64, charges []Charge,
) (granted int64, err error) {
	if op == algorithm.Decide && g.known(ctx, op, charges, d) {
		return 0, nil
	}
	p := newInquiry(op, bound)
	defer p.release()
	if err := g.run(ctx, p, d, charges); err != nil || !d.Allowed {
		return 0, err
	}
	return p.bound, nil
}

// run decides and observes. What the store made of each charge stays in the inquiry.
func (g *Gate) run(ctx context.Context, p *inquiry, d *Decision, charges []Charge) error {
	start := g.start()
	p.began = g.cache.now()
	err := g.resolve(ctx, p, d, charges)
	if err == nil || errors.Is(err, ErrMisconfigured) {
		p.results(d, charges)
		g.cache.keep(p, d, charges)
		g.watch(p, d, charges, start)
	}
	g.tellDecision(ctx, p.op, d, charges[:p.asked], err, start)
	return err
}

// resolve lays out the charges, asks the store, and leaves in d whether the request may go on.
func (g *Gate) resolve(ctx context.Context, p *inquiry, d *Decision, charges []Charge) error {
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
	p.source = g.source
	d.Source = g.source
	if len(p.wire) == 0 {
		d.Allowed = !p.denied
		return nil
	}
	g.raise(ctx, p)
	if p.holds && slices.ContainsFunc(p.charges, held) {
		p.hold = g.holdID()
		p.heldSince = time.Now()
	}
	if p.op == algorithm.AtMost {
		p.bound = min(p.bound, algorithm.MaxUnits)
		for _, c := range p.charges {
			if !c.Shadow && c.Units > 0 && !c.Adjusts {
				p.bound = min(p.bound, c.Limit.Capacity())
			}
		}
	}
	err := g.ask(ctx, p, d)
	if err == nil && p.slot.Queues() { // nothing was spent; the charges are before the wait
		p.slot = nil
		err = g.ask(ctx, p, d)
	}
	return err
}

// requests returns the inquiry's requests: one, or one for each part that the store decides in a
// step. Parts whose policies denied last come first, because they are the most likely to deny.
func (g *Gate) requests(p *inquiry) []request.Request {
	parts := g.store.Split(p.charges)
	if parts == nil {
		p.whole[0].Charges = p.charges
		return p.whole[:]
	}
	denied := func(part []*request.Charge) (last int64) {
		for _, c := range part {
			last = max(last, p.of(c).policy.lastDenial.Load())
		}
		return last
	}
	slices.SortStableFunc(parts, func(a, b []*request.Charge) int {
		return cmp.Compare(denied(b), denied(a))
	})
	requests := make([]request.Request, len(parts))
	for i, part := range parts {
		requests[i].Charges = part
	}
	return requests
}

// ask asks for the inquiry's requests in turn. After a denial it only peeks at the rest, so that
// the decision names every policy that denies.
func (g *Gate) ask(caller context.Context, p *inquiry, d *Decision) error {
	requests := g.requests(p)
	ctx := caller
	if p.hold != "" { // a charge that nobody knows of would count for its Hold
		ctx = deadline.Keep(caller)
	}
	if p.parted = len(requests) > 1; p.parted {
		ctx = g.bound(ctx) // all of them, where the store bounds each
	}
	p.admitted = !p.denied
	for i := range requests {
		p.word(&requests[i])
		err := g.askOne(ctx, caller, p, requests[i:i+1])
		if err != nil && deadline.Err(caller) != nil {
			g.giveBack(ctx, p, requests[:i], false)
			d.Source = SourceNone
			return fmt.Errorf("core: %w", deadline.Err(caller))
		}
		p.take(&requests[i], err)
	}
	if p.hold != "" && caller.Err() != nil {
		g.giveBack(g.bound(ctx), p, requests, false)
		d.Source = SourceNone
		return fmt.Errorf("core: %w", caller.Err())
	}
	if p.cause != nil {
		p.admitted = g.fail(ctx, p, d, p.cause, p.admitted)
	}
	if p.parted {
		g.giveBack(ctx, p, requests, p.admitted)
		if !p.admitted && p.op != algorithm.Peek {
			g.rememberDenial(p)
		}
	}
	d.Allowed = p.admitted && !p.slot.Refused()
	if !p.admitted && errors.Is(p.cause, ErrMisconfigured) {
		return p.cause
	}
	return nil
}

// word fills in what a request asks for: what the caller asked, or a Peek after a denial.
func (p *inquiry) word(r *request.Request) {
	r.Op = p.op
	r.Bound = p.bound
	r.Receipts = p.keeps || p.parted
	r.Hold = p.hold
	r.Slot = nil
	r.Unseeded = false
	if !p.admitted {
		r.Op = algorithm.Peek
	} else if r.Slot = p.slot; p.slot != nil {
		p.slot.Sent = true
	}
}

// askOne asks for one request, after its keys are seeded. If a ledger does not answer, it asks for
// the charges that need none.
func (g *Gate) askOne(ctx, caller context.Context, p *inquiry, one []request.Request) error {
	r := &one[0]
	err := g.send(ctx, one)
	if err == nil && r.Unseeded {
		err = g.sendSeeded(ctx, caller, p, one)
	}
	if err == nil || !errors.Is(err, ErrLedger) {
		return err
	}
	closed, others := p.dropLedgers(r, err)
	if !others {
		return err
	}
	p.parted = true
	p.cause = cmp.Or(p.cause, err)
	if p.admitted = p.admitted && !closed; !p.admitted {
		r.Op = algorithm.Peek
	}
	return g.send(ctx, one)
}

// take takes the answer to a request, or its failure: a Closed policy denies then.
func (p *inquiry) take(r *request.Request, err error) {
	if err == nil {
		p.admitted = p.admitted && r.Admitted()
		if p.admitted && p.op == algorithm.AtMost {
			p.bound = r.Verdict
		}
		return
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
}

func (g *Gate) rememberDenial(p *inquiry) {
	for i := range p.wire {
		if c := &p.wire[i]; c.answered() && !c.Fits {
			c.policy.lastDenial.Store(g.denials.Add(1))
		}
	}
}

// send asks the store. An outage is an error that wraps neither the error of the caller's context
// nor ErrMisconfigured.
func (g *Gate) send(ctx context.Context, requests []request.Request) error {
	for i := range requests {
		if g.cache != nil && lifts(&requests[i]) {
			return g.sendLifting(ctx, requests)
		}
	}
	return g.store.Decide(ctx, requests)
}

// sendLifting is send for requests some of which lift denials.
func (g *Gate) sendLifting(ctx context.Context, requests []request.Request) error {
	var keys []uint64
	for i := range requests {
		for _, c := range requests[i].Charges {
			if requests[i].Op != algorithm.Reserve || c.Units > 0 { // what only asks changes nothing
				keys = append(keys, c.Hash)
			}
		}
	}
	defer g.cache.lifting(keys...)()
	return g.store.Decide(ctx, requests)
}

// start returns the time if somebody observes.
func (g *Gate) start() (t time.Time) {
	if g.observe != nil {
		t = time.Now()
	}
	return t
}
