package report

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/series"
)

// The results of charges, in the order in which decisions holds them.
var results = [...]string{
	series.ResultAllowed, series.ResultDenied, series.ResultFits, series.ResultWouldDeny,
	series.ResultCanceled, series.ResultMisconfigured, series.ResultFailed,
}

const (
	allowed = iota
	denied
	fits
	wouldDeny
	canceled
	misconfigured
	failed
)

const (
	maxOps     = int(core.OpReserve) + 1
	maxSources = int(core.SourceOverload) + 1
)

// quick is the time from which a decision without Redis is recorded. One in memory takes less than a
// microsecond, and to record its time would cost as much.
const quick = 100 * time.Microsecond

// decisions holds the instruments of decisions, so that one costs a single look into a map.
type decisions struct {
	*series.Recorder
	counts    [maxOps][maxSources]held
	durations [maxOps][maxSources]held
	policies  series.Table[party, *outcomes]
}

// outcomes are the instruments of one party by result and source.
type outcomes [len(results)][maxSources]held

// party is a policy, and a tenant if the user tells them.
type party struct{ policy, tenant string }

// held is an instrument, or nil if nothing was recorded yet.
type held struct {
	instrument atomic.Pointer[series.Instrument]
}

// observe records a decision.
func (d *decisions) observe(w *recording, e *core.DecisionEvent) {
	op, source := min(int(e.Op), maxOps-1), min(int(e.Decision.Source), maxSources-1)
	d.labelled(&d.counts[op][source], series.Decisions, e).Record(w.Context, 1)
	if e.Took >= quick || e.Decision.Source == core.SourceRedis {
		d.labelled(&d.durations[op][source], series.DecisionDuration, e).Record(w.Context, e.Took.Seconds())
	}
	if e.Op == core.OpPeek {
		return
	}
	undecided := failureOf(e)
	for i := range e.Charges {
		d.charged(w, e, i, undecided)
	}
	if len(e.Charges) == 0 { // an error before they were looked at
		d.count(w, policyName(nil), max(undecided, allowed), e.Decision.Source)
	}
	if e.Op == core.OpReserve && e.Decision.Allowed {
		w.delay(&e.Decision)
	}
}

// labelled returns what records a series of decisions under the operation and the source of one.
func (d *decisions) labelled(
	h *held, s *series.Series, e *core.DecisionEvent,
) series.Instrument {
	i := h.instrument.Load()
	if i == nil {
		made := d.Instrument(s, "", e.Op.String(), e.Decision.Source.String())
		i = &made
		h.instrument.Store(i)
	}
	return *i
}

// failureOf returns the result of all charges of a decision, or -1 if each has its own.
func failureOf(e *core.DecisionEvent) int {
	switch {
	case e.Err == nil || e.Decision.Allowed:
		return -1
	case errors.Is(e.Err, core.ErrMisconfigured):
		return misconfigured
	case e.Decision.Len() > 0:
		return -1
	case errors.Is(e.Err, context.Canceled) || errors.Is(e.Err, context.DeadlineExceeded):
		return canceled
	}
	return failed
}

// charged records what was decided on charge i.
func (d *decisions) charged(w *recording, e *core.DecisionEvent, i, undecided int) {
	result, source := undecided, e.Decision.Source
	if i < e.Decision.Len() {
		one := e.Decision.At(i)
		if source = one.Source; result < 0 {
			result = resultOf(e, &one)
		}
	} else if result < 0 {
		result = failed
	}
	d.count(w, policyName(e.Charges[i].Policy), result, source)
}

// count counts one charge.
func (d *decisions) count(w *recording, policy string, result int, source core.Source) {
	source = min(source, core.SourceOverload)
	held := &d.party(policy, w.Tenant)[result][source]
	known := held.instrument.Load()
	if known == nil {
		made := d.Instrument(series.Requests, w.Tenant, policy, results[result], source.String())
		known = &made
		held.instrument.Store(known)
	}
	(*known).Record(w.Context, 1)
}

func resultOf(e *core.DecisionEvent, one *core.Result) int {
	switch {
	case !one.Allowed && one.Policy.Shadow():
		return wouldDeny
	case e.Decision.Allowed:
		return allowed
	case one.Allowed:
		return fits
	}
	return denied
}

// party returns the instruments of a policy and a tenant.
func (d *decisions) party(policy, tenant string) *outcomes {
	if known, ok := d.policies.Get(party{policy, tenant}); ok {
		return known
	}
	at := party{d.Bounded(series.LabelPolicy, policy), d.Bounded(series.LabelTenant, tenant)}
	return d.policies.Make(at, func() *outcomes { return new(outcomes) })
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
