package otelgate

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/bloom"
	"github.com/headgate/headgate/core/semaphore"
)

// Spans says which events become spans. A span starts when the operation did, below the span of the
// caller's context. Its attributes name policies and semaphores, and no key.
type Spans uint8

const (
	// SpansWaited makes spans of operations that waited in a queue, of reservations that have to wait
	// before they act, and of operations that failed or that a failure mode decided. A denial is no
	// failure.
	SpansWaited Spans = iota
	// SpansAll makes a span of each operation.
	SpansAll
	// SpansNone makes none.
	SpansNone
)

var spans = [...]string{"waited", "all", "none"}

// String returns the value in one lower-case word.
func (s Spans) String() string {
	if int(s) < len(spans) {
		return spans[s]
	}
	return "unknown"
}

// tracing makes spans of events.
type tracing struct {
	tracer trace.Tracer
	spans  Spans
}

// call is what a span tells of an operation.
type call struct {
	took   time.Duration
	err    error
	waited bool
}

func (t *tracing) observe(ctx context.Context, e core.Event) {
	if t.spans == SpansNone {
		return
	}
	c, ok := callOf(e)
	if !ok || t.spans == SpansWaited && !c.waited && c.err == nil {
		return
	}
	now := time.Now()
	_, span := t.tracer.Start(ctx, "headgate "+e.EventName(),
		trace.WithTimestamp(now.Add(-c.took)), trace.WithAttributes(attributesOf(e)...))
	if c.err != nil {
		span.RecordError(c.err)
		span.SetStatus(codes.Error, c.err.Error())
	}
	span.End(trace.WithTimestamp(now))
}

// callOf returns the operation of an event. Some events are none.
func callOf(e core.Event) (c call, ok bool) {
	switch e := e.(type) {
	case *core.DecisionEvent:
		return call{e.Took, e.Err, e.Op == core.OpReserve && delayOf(&e.Decision) > 0}, true
	case *core.ReservationEvent:
		return call{e.Took, e.Err, false}, e.Took > 0
	case *core.KeyEvent:
		return call{e.Took, e.Err, false}, true
	case *semaphore.AcquireEvent:
		return call{e.Took, e.Err, e.Waited}, true
	case *semaphore.LeaseEvent:
		return call{e.Took, e.Err, false}, e.Took > 0
	case *bloom.Event:
		return call{e.Took, e.Err, false}, true
	}
	return call{}, false
}

// delayOf returns the longest time that a Reserve was told to wait before it acts.
func delayOf(d *core.Decision) (longest time.Duration) {
	for _, r := range d.Results() {
		longest = max(longest, r.Delay)
	}
	return longest
}

// attributesOf returns what is known of an operation, without its keys.
func attributesOf(e core.Event) []attribute.KeyValue {
	switch e := e.(type) {
	case *core.DecisionEvent:
		var policies []string
		for _, c := range e.Charges {
			if c.Policy != nil {
				policies = append(policies, c.Policy.Name())
			}
		}
		all := []attribute.KeyValue{
			attribute.StringSlice("headgate.policies", policies),
			attribute.Bool("headgate.allowed", e.Decision.Allowed),
			attribute.String("headgate.source", e.Decision.Source.String()),
		}
		if e.Op == core.OpReserve {
			all = append(all, attribute.Float64("headgate.delay", delayOf(&e.Decision).Seconds()))
		}
		return all
	case *core.KeyEvent:
		if e.Policy != nil {
			return []attribute.KeyValue{
				attribute.StringSlice("headgate.policies", []string{e.Policy.Name()}),
			}
		}
	case *semaphore.AcquireEvent:
		return []attribute.KeyValue{
			attribute.String("headgate.semaphore", e.Semaphore.Name()),
			attribute.Bool("headgate.allowed", e.Source != core.SourceNone && !e.Refused()),
			attribute.String("headgate.source", e.Source.String()),
			attribute.Bool("headgate.waited", e.Waited),
		}
	case *semaphore.LeaseEvent:
		return []attribute.KeyValue{attribute.String("headgate.semaphore", e.Semaphore.Name())}
	case *bloom.Event:
		return []attribute.KeyValue{attribute.String("headgate.filter", e.Filter.Name())}
	}
	return nil
}
