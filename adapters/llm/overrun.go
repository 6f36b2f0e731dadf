package llm

import "time"

// Overrun decides about a stream that outgrows its budget.
type Overrun uint8

const (
	// OverrunDebt lets it go on. What it uses beyond the budget is a debt. Later requests wait
	// until the debt is paid.
	OverrunDebt Overrun = iota
	// OverrunEnd ends it between two events, with an error of the server's own format. A stream
	// with a Content-Encoding goes on as with OverrunDebt.
	OverrunEnd
)

// String returns "debt" or "end".
func (o Overrun) String() string { return nameOf([]string{"debt", "end"}, int(o)) }

// ending is the error that ends a stream early.
type ending struct{ kind, message string }

// overrun notes that a budget has denied a running charge, which would have to wait that long.
func (x *exchange) overrun(wait time.Duration) {
	x.indebted = true
	if x.meter.cfg.Overrun == OverrunEnd {
		x.ending = x.meter.endingFor(wait)
	}
}

// endingFor returns the error for a stream whose next charge would have to wait that long.
func (m *Meter) endingFor(wait time.Duration) *ending {
	if wait > patience(m.cfg.RetryWithin) {
		return &ending{"insufficient_quota", "The budget is spent, and the stream ends here."}
	}
	return &ending{"rate_limit_exceeded", "The rate limit is reached, and the stream ends here."}
}
