package llm

import (
	"context"
	"net/http"
	"sort"
	"sync"
	"time"

	"github.com/headgate/headgate/adapters/llm/internal/wire"
	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
)

// ending is why a stream is to end early.
type ending struct{ kind, message string }

// pay notes what the guard has charged, and how much output that pays for: less than the estimate
// if a budget has lowered it to its limit.
func (x *exchange) pay(r *http.Request) {
	a := nethttp.AdmissionFromContext(r.Context())
	if a == nil || a == x.outer { // the guard was skipped
		return
	}
	limits := make(map[*core.Policy]int64)
	for _, result := range a.Decision().Results() {
		limits[result.Policy] = result.Limit
	}
	budgets := x.meter.cfg.Budgets
	x.paid = make([]int64, len(budgets))
	lowered := false
	for i, b := range budgets {
		x.paid[i] = cost(x.models, b.Policy.Unit(), x.estimate)
		if limit := limits[b.Policy]; limit > 0 && limit < x.paid[i] {
			x.paid[i], lowered = limit, true
		}
	}
	if !lowered {
		x.reserved = x.estimate.Output
		return
	}
	u := x.estimate
	x.reserved = int64(sort.Search(int(min(x.estimate.Output, wire.MaxTokens)), func(n int) bool {
		u.Output = int64(n) + 1
		for i, b := range budgets {
			if unit := b.Policy.Unit(); unit != core.UnitInputTokens && cost(x.models, unit, u) > x.paid[i] {
				return true
			}
		}
		return false
	}))
}

// chargeRunning charges a stream for the output that is beyond what it has paid for.
func (x *exchange) chargeRunning(r *http.Request) {
	every := x.meter.cfg.ChargeEvery
	if every == 0 || x.indebted || !x.request.Stream || x.paid == nil {
		return
	}
	o := x.tap.Response()
	seen := x.seen(&o)
	if seen <= x.reserved || o.Answered() {
		return
	}
	// Charges that grow keep a long stream's number small.
	least := max(every, seen-x.reserved)
	for more := max(least, x.beyond/2); ; more = least {
		charges, err := x.meter.running(r, x, more)
		if err != nil || len(charges) == 0 {
			x.reserved += more
			return // it is a debt at the end
		}
		// The charge ends within the Gate's timeout whether the client is there or not.
		reservation, d, err := x.meter.cfg.Guard.Gate.Charge(context.WithoutCancel(r.Context()), charges...)
		if reservation != nil {
			reservation.Keep()
			x.extra = append(x.extra, runningCharge{charges, reservation})
		} else if err == nil && d.Cause == nil {
			if more > least {
				continue
			}
			x.indebted = true
			if x.meter.cfg.Overrun == OverrunEnd {
				x.ending = x.meter.endingFor(d.RetryAfter())
			}
		}
		x.reserved, x.beyond = x.reserved+more, x.beyond+more
		return
	}
}

// endingFor returns what ends a stream whose next charge had to wait for so long.
func (m *Meter) endingFor(wait time.Duration) *ending {
	if wait > patience(m.cfg.RetryWithin) {
		return &ending{"insufficient_quota", "The budget is spent, and the stream ends here."}
	}
	return &ending{"rate_limit_exceeded", "The rate limit is reached, and the stream ends here."}
}

// seen returns the output of the response so far, by the ratio that was learnt. It is for running
// charges: other tenants' requests have taught the ratio, so nothing is settled by it.
func (x *exchange) seen(o *wire.Response) int64 {
	return x.capped(o, max(o.TextTokens(), x.meter.learnt(x.request.Model).text.of(o.TextTokens())))
}

// shown returns the output that the response has shown.
func (x *exchange) shown() int64 {
	if x.tap == nil {
		return 0
	}
	o := x.tap.Response()
	return x.capped(&o, o.TextTokens())
}

// capped lowers a number of tokens to the request's own cap, which the server heeds. It is at least
// a token for each event with text, and what the response has stated.
func (x *exchange) capped(o *wire.Response, tokens int64) int64 {
	if most := x.request.MaxOutput * x.request.Choices; most > 0 {
		tokens = min(tokens, most)
	}
	return max(tokens, o.Events, o.Usage.Output)
}

// settleExtra settles the running charges so that all charges of each budget come to what was used,
// and leaves in x.settled what the first charge keeps.
func (x *exchange) settleExtra(ctx context.Context) {
	budgets := x.meter.cfg.Budgets
	x.settled = make([]int64, len(budgets))
	beyond := make(map[*core.Policy]int64, len(budgets)) // what the first charge has paid for
	for i, b := range budgets {
		x.settled[i] = cost(x.models, b.Policy.Unit(), x.event.Usage)
		if x.paid != nil {
			beyond[b.Policy] = max(0, x.settled[i]-x.paid[i])
		}
	}
	kept := make(map[*core.Policy]int64, len(budgets))
	var all sync.WaitGroup
	for _, e := range x.extra {
		actual := make([]int64, len(e.charges))
		for j, c := range e.charges {
			actual[j] = min(c.Cost, beyond[c.Policy]-kept[c.Policy])
			kept[c.Policy] += actual[j]
		}
		all.Go(func() {
			_ = e.reservation.Settle(ctx, actual...) // core.Config.Observe is told of a failure
		})
	}
	all.Wait()
	for i, b := range budgets {
		x.settled[i] -= kept[b.Policy]
	}
}
