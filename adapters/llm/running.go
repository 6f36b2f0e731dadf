package llm

import (
	"context"
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
)

// ending is why a stream is to end early.
type ending struct{ kind, message string }

// chargeRunning charges a stream for the output that is beyond what it has paid for.
func (x *exchange) chargeRunning(r *http.Request) {
	every := x.meter.cfg.ChargeEvery
	if every == 0 || x.indebted || !x.request.Stream {
		return
	}
	seen := x.seen()
	if seen <= x.reserved {
		return
	}
	more := (seen - x.reserved + every - 1) / every * every
	charges, err := x.meter.running(r, x, more)
	x.reserved += more
	if err != nil || len(charges) == 0 {
		return // it is a debt at the end
	}
	// The charge ends within the Gate's timeout whether the client is there or not.
	reservation, d, err := x.meter.cfg.Guard.Gate.Charge(context.WithoutCancel(r.Context()), charges...)
	switch {
	case reservation != nil:
		reservation.Keep()
		x.extra = append(x.extra, runningCharge{charges, reservation})
	case err == nil && d.Cause == nil:
		x.indebted = true
		if x.meter.cfg.Overrun == OverrunEnd {
			x.ending = x.meter.endingFor(d.RetryAfter())
		}
	}
}

// endingFor returns what ends a stream whose next charge had to wait for so long.
func (m *Meter) endingFor(wait time.Duration) *ending {
	within := m.cfg.Guard.RetryWithin
	if within == 0 {
		within = time.Minute
	}
	if wait > within {
		return &ending{"insufficient_quota", "The budget is spent, and the stream ends here."}
	}
	return &ending{"rate_limit_exceeded", "The rate limit is reached, and the stream ends here."}
}

// seen returns the output of the response so far. The learnt ratio does not take it beyond the
// client's cap, which the server keeps.
func (x *exchange) seen() int64 {
	if x.tap == nil {
		return 0
	}
	likely := x.meter.learnt(x.request.Model).text.of(raw(x.tap.result()))
	if x.request.MaxOutput > 0 {
		likely = min(likely, x.request.MaxOutput*x.request.Choices)
	}
	return max(x.tap.seenOutput(), likely)
}

// raw returns the output of a response as a first guess.
func raw(o Observed) int64 { return max(o.Events, (o.TextBytes+bytesPerToken-1)/bytesPerToken) }

// settleExtra settles the running charges so that all charges of each budget come to what was used,
// and leaves in x.settled what the first charge keeps.
func (x *exchange) settleExtra(ctx context.Context) {
	budgets := x.meter.cfg.Budgets
	x.settled = make([]int64, len(budgets))
	rest := make(map[*core.Policy]int64, len(budgets))
	for i, b := range budgets {
		unit := b.Policy.Unit()
		actual := cost(x.models, unit, x.report.Usage)
		x.settled[i] = actual
		if len(x.extra) > 0 {
			x.settled[i] = min(actual, cost(x.models, unit, x.estimate))
			rest[b.Policy] = actual - x.settled[i]
		}
	}
	for i, e := range x.extra {
		actual := make([]int64, len(e.charges))
		for j, c := range e.charges {
			actual[j] = min(c.Cost, rest[c.Policy])
			if i == len(x.extra)-1 {
				actual[j] = rest[c.Policy]
			}
			rest[c.Policy] -= actual[j]
		}
		_ = e.reservation.Settle(ctx, actual...) // core.Config.Observe is told of a failure
	}
}
