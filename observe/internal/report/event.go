package report

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/bloom"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/series"
)

// recording is one event while it is recorded.
type recording struct{ series.Recording }

// measure records an event of core or of a package beside core. It reports whether it knows the event.
func (w *recording) measure(e core.Event) bool {
	switch e := e.(type) {
	case *core.DecisionEvent:
		w.decision(e)
	case *core.ReservationEvent:
		result := series.ResultOf(e.Err)
		if e.Op == core.OpHoldExpired || e.Op == core.OpRefundFailed {
			result = series.ResultFailed
		}
		w.Record(series.Reservations, 1, e.Op.String(), result)
		w.took(e.Op.String(), result, e.Took)
	case *core.KeyEvent:
		w.Record(series.KeyChanges, 1, policyName(e.Policy), e.Op.String(), series.ResultOf(e.Err))
		w.took(e.Op.String(), series.ResultOf(e.Err), e.Took)
	case *core.ThresholdEvent:
		w.Record(series.Thresholds, 1, policyName(e.Policy), strconv.Itoa(e.Percent))
	case *core.ServerEvent:
		w.server(e)
	case *semaphore.AcquireEvent:
		w.acquired(e)
	case *semaphore.LeaseEvent:
		w.leased(e)
	case *bloom.Event:
		w.Record(series.FilterCalls, 1, e.Filter.Name(), series.ResultOf(e.Err))
		w.took(e.EventName(), series.ResultOf(e.Err), e.Took)
	default:
		return false
	}
	return true
}

func (w *recording) server(e *core.ServerEvent) {
	node := nodeName(e.Node)
	switch e.Op {
	case core.OpCircuitOpened:
		w.Record(series.CircuitOpen, 1, node)
		w.Record(series.CircuitChanges, 1, node, "open")
	case core.OpCircuitClosed:
		w.Record(series.CircuitOpen, 0, node)
		w.Record(series.CircuitChanges, 1, node, "closed")
	case core.OpOverload:
		w.Record(series.Overloads, 1, node)
	case core.OpScriptMissing:
		w.Record(series.MissingScripts, 1)
	}
}

func (w *recording) acquired(e *semaphore.AcquireEvent) {
	name, result := e.Semaphore.Name(), acquireResult(e)
	w.Record(series.SlotRequests, 1, name, result, e.Source.String())
	w.Record(series.SlotDuration, e.Took.Seconds(), name, result)
	if e.Waited {
		w.Record(series.TimeInQueue, e.Took.Seconds(), name, result)
	}
}

// acquireResult returns what came of an acquire. A failure mode that granted a slot says in Err why
// it decided.
func acquireResult(e *semaphore.AcquireEvent) string {
	switch {
	case e.Full != nil:
		return series.ResultFull
	case e.Err == nil, e.Source != core.SourceNone && !e.Refused():
		return series.ResultAcquired
	case e.Refused():
		return series.ResultDenied
	case errors.Is(e.Err, context.Canceled) || errors.Is(e.Err, context.DeadlineExceeded):
		return series.ResultCanceled
	case errors.Is(e.Err, core.ErrMisconfigured):
		return series.ResultMisconfigured
	}
	return series.ResultFailed
}

func (w *recording) leased(e *semaphore.LeaseEvent) {
	result := series.ResultOf(e.Err)
	w.Record(series.LeaseChanges, 1, e.Semaphore.Name(), e.Kind.String(), result)
	if e.Kind == semaphore.LeaseReleased {
		w.Record(series.LeaseDuration, e.Held.Seconds(), e.Semaphore.Name())
	}
	w.took(e.EventName(), result, e.Took)
}

// took records how long an operation took, unless the event is no call.
func (w *recording) took(operation, result string, took time.Duration) {
	if took > 0 {
		w.Record(series.OperationDuration, took.Seconds(), operation, result)
	}
}

// nodeName returns a server's address, or a word if the client does not tell it.
func nodeName(addr string) string {
	if addr == "" {
		return "unknown"
	}
	return addr
}

// policyName returns the name of a policy, which an invalid charge may lack.
func policyName(p *core.Policy) string {
	if p == nil {
		return "none"
	}
	return p.Name()
}
