package llm

import (
	"time"

	"github.com/headgate/headgate/core"
)

// Overrun decides about a stream that outgrows its budget.
type Overrun uint8

const (
	// OverrunDebt lets it go on. What it uses beyond the budget is a debt. Later requests wait
	// until the debt is paid.
	OverrunDebt Overrun = iota
	// OverrunEnd ends it between two events, with an error of the server's own format. The Meter asks
	// the server for a stream without a Content-Encoding. One that has one nevertheless goes on as with
	// OverrunDebt.
	OverrunEnd
)

// endings are the messages of the errors that end a stream early, by their codes.
var endings = map[string]string{
	"insufficient_quota":  "The budget is spent, and the stream ends here.",
	"rate_limit_exceeded": "The rate limit is reached, and the stream ends here.",
}

// overrun notes that a budget has denied a running charge, which would have to wait that long.
func (x *call) overrun(wait time.Duration) {
	x.indebted = true
	switch cfg := &x.meter.cfg; {
	case cfg.Overrun != OverrunEnd:
	case wait > patience(cfg.RetryWithin):
		x.ending = "insufficient_quota"
	default:
		x.ending = "rate_limit_exceeded"
	}
}

// waitOf returns how long running charges that were denied would have to wait. What other requests
// hold may come back soon. What the stream itself holds does not, as long as it runs.
func (x *call) waitOf(charges []core.Charge, d *core.Decision) (wait time.Duration) {
	wait = d.RetryAfter()
	for i, r := range d.Results() {
		if r.Allowed || r.Policy.Shadow() {
			continue
		}
		free := r.Remaining + r.Held - x.held(r.Policy) - max(0, r.Used-r.Limit)
		if charges[i].Cost > free {
			wait = max(wait, r.KeptAfter())
		}
	}
	return wait
}

// held returns how many units of a budget the call holds.
func (x *call) held(p *core.Policy) (units int64) {
	for i, b := range x.meter.cfg.Budgets {
		if b.Policy == p {
			units += x.paid[i]
		}
	}
	for _, e := range x.running {
		for _, c := range e.charges {
			if c.Policy == p {
				units += c.Cost
			}
		}
	}
	return units
}
