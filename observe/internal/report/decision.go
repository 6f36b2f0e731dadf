package report

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/series"
)

// quick is the time from which a decision without Redis is recorded. One in memory takes less than a
// microsecond, and to record its time would cost as much.
const quick = 100 * time.Microsecond

// decision records a decision.
func (w *recording) decision(e *core.DecisionEvent) {
	op, source := e.Op.String(), e.Decision.Source
	w.Record(series.Decisions, 1, op, source.String())
	if e.Took >= quick || source == core.SourceRedis {
		w.Record(series.DecisionDuration, e.Took.Seconds(), op, source.String())
	}
	if e.Op == core.OpPeek {
		return
	}
	undecided := failureOf(e)
	for i := range e.Charges {
		w.charged(e, i, undecided)
	}
	if len(e.Charges) == 0 { // an error before they were looked at
		w.Record(series.Requests, 1, policyName(nil), cmp.Or(undecided, series.ResultAllowed), source.String())
	}
	if e.Op == core.OpReserve && e.Decision.Allowed {
		w.delay(&e.Decision)
	}
}

// failureOf returns the result of all charges of a decision, or "" if each has its own.
func failureOf(e *core.DecisionEvent) string {
	switch {
	case e.Err == nil || e.Decision.Allowed:
		return ""
	case errors.Is(e.Err, core.ErrMisconfigured):
		return series.ResultMisconfigured
	case e.Decision.Len() > 0:
		return ""
	case errors.Is(e.Err, context.Canceled) || errors.Is(e.Err, context.DeadlineExceeded):
		return series.ResultCanceled
	}
	return series.ResultFailed
}

// charged records what was decided on charge i.
func (w *recording) charged(e *core.DecisionEvent, i int, undecided string) {
	result, source := cmp.Or(undecided, series.ResultFailed), e.Decision.Source
	if i < e.Decision.Len() {
		one := e.Decision.At(i)
		source = one.Source
		result = cmp.Or(undecided, resultOf(e, &one))
	}
	w.Record(series.Requests, 1, policyName(e.Charges[i].Policy), result, source.String())
}

func resultOf(e *core.DecisionEvent, one *core.Result) string {
	switch {
	case !one.Allowed && one.Policy.Shadow():
		return series.ResultWouldDeny
	case e.Decision.Allowed:
		return series.ResultAllowed
	case one.Allowed:
		return series.ResultFits
	}
	return series.ResultDenied
}

// delay records the longest delay of a Reserve, which it is told to wait.
func (w *recording) delay(decision *core.Decision) {
	var longest time.Duration
	var policy *core.Policy
	for i := range decision.Len() {
		if r := decision.At(i); policy == nil || r.Delay > longest {
			longest, policy = r.Delay, r.Policy
		}
	}
	if policy != nil {
		w.Record(series.LimiterWait, longest.Seconds(), policyName(policy))
	}
}
