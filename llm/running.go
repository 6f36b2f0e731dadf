package llm

import (
	"context"
	"net/http"
	"sort"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm/internal/wire"
)

// pay notes what the guard has charged, and the output that this pays for: less than the estimate
// if a budget has lowered it to its limit. Later calls do nothing. The first byte of a response does
// not wait for it.
func (x *call) pay(ctx context.Context) {
	if x.counted {
		return
	}
	x.counted = true
	a := nethttp.AdmissionFromContext(ctx)
	if a == nil || a == x.outer { // the guard was skipped
		return
	}
	budgets := x.meter.cfg.Budgets
	x.paid = make([]int64, len(budgets))
	lowered, expected := false, x.expected(x.estimate)
	for i, b := range budgets {
		x.paid[i] = x.units(b.Policy.Unit(), &expected)
		for _, result := range a.Decision().Results() {
			if result.Policy == b.Policy && result.Limit > 0 && result.Limit < x.paid[i] {
				x.paid[i], lowered = result.Limit, true
			}
		}
	}
	x.reserved = x.estimate.Output
	if lowered {
		most := int(min(x.estimate.Output, wire.MaxTokens))
		x.reserved = int64(sort.Search(most, func(n int) bool { return !x.paysFor(int64(n) + 1) }))
	}
}

// paysFor reports whether the guard has charged every budget enough for that much output.
func (x *call) paysFor(output int64) bool {
	b := x.expected(x.estimate)
	b.Usage.Output = output
	for i, budget := range x.meter.cfg.Budgets {
		unit := budget.Policy.Unit()
		if unit != core.UnitInputTokens && x.units(unit, &b) > x.paid[i] {
			return false
		}
	}
	return true
}

// chargeRunning charges a stream for the output beyond what it has paid for.
func (x *call) chargeRunning(r *http.Request) {
	every := x.meter.cfg.ChargeEvery
	if every == 0 || x.indebted || !x.request.Stream {
		return
	}
	if x.pay(r.Context()); x.paid == nil {
		return
	}
	o := x.tap.Response()
	seen := x.seen(&o)
	if seen <= x.reserved || o.Answered() {
		return
	}
	// Charges that grow keep their number small for a long stream.
	least := max(every, seen-x.reserved)
	more := max(least, x.beyond/2)
	if !x.charge(r, more, more == least) {
		more = least
		x.charge(r, more, true)
	}
}

// charge charges a stream for more tokens of output. It reports false if a budget denies them and
// it is not the last try.
func (x *call) charge(r *http.Request, more int64, last bool) bool {
	charges, err := x.meter.chargesOf(r, x, more)
	if err != nil || len(charges) == 0 {
		x.reserved += more
		return true // it is a debt at the end
	}
	// The charge ends within the Gate's timeout, so it need not end with the client.
	ctx := context.WithoutCancel(r.Context())
	reservation, d, err := x.meter.cfg.Guard.Gate.Charge(ctx, charges...)
	switch {
	case reservation != nil:
		x.running = append(x.running, runningCharge{charges, reservation})
	case err == nil && d.Cause == nil && !last:
		return false
	case err == nil && d.Cause == nil:
		x.overrun(x.waitOf(charges, &d))
	}
	x.reserved, x.beyond = x.reserved+more, x.beyond+more
	return true
}

// seen returns the output of the response so far, corrected by the learnt ratio. Only running
// charges use it: other tenants' requests have taught the ratio, so no settlement may.
func (x *call) seen(o *wire.Response) int64 {
	text := o.TextTokens()
	return x.capped(o, max(text, x.learnt().text.of(text)))
}

// shown returns the output of the response so far, not corrected.
func (x *call) shown() int64 {
	if x.tap == nil {
		return 0
	}
	o := x.tap.Response()
	return x.capped(&o, o.TextTokens())
}

// capped lowers a number of tokens to the request's own cap, which the server obeys. It returns at
// least a token for each event with text, and what the response has stated.
func (x *call) capped(o *wire.Response, tokens int64) int64 {
	if most := x.request.MaxOutput * x.request.Choices; most > 0 {
		tokens = min(tokens, most)
	}
	return max(tokens, o.Events, o.Usage.Output)
}
