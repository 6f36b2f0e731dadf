package llm

import (
	"context"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/llm/internal/wire"
)

// pay notes what the guard has charged, and the output that this pays for at least: none if a budget
// has lowered the estimate to its limit. Later calls do nothing. The first byte of a response does not
// wait for it.
func (x *call) pay() {
	if x.paid != nil || x.exempt() {
		return
	}
	budgets := x.meter.cfg.Budgets
	x.paid, x.reserved = make([]int64, len(budgets)), x.estimate.Output
	expected := x.expected(x.estimate)
	for i, b := range budgets {
		x.paid[i] = x.units(b.Policy.Unit(), &expected)
		for _, result := range x.admitted.Decision().Results() {
			if result.Policy == b.Policy && result.Limit > 0 && result.Limit < x.paid[i] {
				x.paid[i], x.reserved = result.Limit, 0
			}
		}
	}
}

// exempt reports whether the guard was skipped.
func (x *call) exempt() bool {
	return nethttp.AdmissionFromContext(x.ctx) != &x.admitted.Admission
}

// chargeRunning charges a stream for the output beyond what it has paid for.
func (x *call) chargeRunning() {
	if len(x.charges) == 0 || x.indebted {
		return
	}
	x.pay()
	o := x.tap.Response()
	seen := x.seen(&o)
	if seen <= x.reserved || o.Answered() {
		return
	}
	// Charges that grow keep their number small for a long stream.
	least := max(x.meter.cfg.ChargeEvery, seen-x.reserved)
	more := max(least, x.beyond/2)
	if !x.charge(more, more == least) {
		x.charge(least, true)
	}
}

// charge charges a stream for more tokens of output. It reports false if a budget denies them and
// it is not the last try.
func (x *call) charge(more int64, last bool) bool {
	charges := x.chargesOf(x.reserved + more)
	if len(charges) == 0 {
		x.reserved += more
		return true
	}
	// The charge ends within the Gate's timeout, so it need not end with the client.
	ctx := context.WithoutCancel(x.ctx)
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

// seen returns the output of a response so far: by its text, but no more than the request's own cap,
// which the server obeys. It is at least a token for each event with text, and what the response has
// stated.
func (x *call) seen(o *wire.Response) int64 {
	tokens := o.TextTokens()
	if most := x.request.MaxOutput * x.request.Choices; most > 0 {
		tokens = min(tokens, most)
	}
	return max(tokens, o.Events, o.Usage.Output)
}
