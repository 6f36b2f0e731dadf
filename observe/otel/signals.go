package otelgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/series"
	"github.com/headgate/headgate/observe/internal/report"
)

// scope is the name of the instrumentation.
const scope = "github.com/headgate/headgate/observe/otel"

// Config configures Signals.
type Config struct {
	// MeterProvider and TracerProvider are where metrics and spans go. Nil means those of package
	// otel.
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider
	// Spans says which events become spans. Zero means SpansWaited.
	Spans Spans
	// Tenant returns the tenant of an event, such as a part of the key of a *core.DecisionEvent's
	// first charge, or "" if the event has none. The series that docs/reference/series.md marks have it
	// as the attribute tenant then. It must be safe for concurrent use. Nil leaves the attribute out.
	Tenant func(context.Context, core.Event) string
	// MaxTenants bounds the values of the attribute. Further tenants share the value "other". Zero
	// means 100.
	MaxTenants int
}

// Signals turns events into metrics and spans. It is safe for concurrent use.
type Signals struct {
	reporter *report.Reporter
	tracing  tracing
	reading  metric.Registration
}

// New returns Signals, or every fault of the configuration at once.
func New(cfg Config) (*Signals, error) {
	var errs []error
	if cfg.Spans > SpansNone {
		errs = append(errs, fmt.Errorf(
			"otelgate: Config.Spans is %d: it must be SpansWaited, SpansAll or SpansNone", cfg.Spans))
	}
	i := &instruments{
		told: make(map[*series.Series]any), read: make(map[*series.Series]metric.Float64Observable),
	}
	reporter, err := report.New(report.Config{
		Exporter: i, Tenant: cfg.Tenant, MaxTenants: cfg.MaxTenants,
	})
	if err != nil {
		errs = append(errs, fmt.Errorf("otelgate: %w", err))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	s := &Signals{reporter: reporter}
	s.tracing.spans = cfg.Spans
	s.tracing.tracer = cmp.Or(cfg.TracerProvider, otel.GetTracerProvider()).Tracer(scope)
	i.reporter = reporter
	s.reading, err = i.make(cmp.Or(cfg.MeterProvider, otel.GetMeterProvider()).Meter(scope))
	if err != nil {
		return nil, fmt.Errorf("otelgate: %w", err)
	}
	return s, nil
}

// Observe records an event. It is for core.Config.Observe, and for the Observe of the other
// packages' configurations.
func (s *Signals) Observe(ctx context.Context, e core.Event) {
	s.reporter.Observe(ctx, e)
	s.tracing.observe(ctx, e)
}

// Watch adds what no event of the Gate tells, until it is closed: its round trips, the slots that
// this process holds, and its callers that wait for one. Gates with semaphores of one name are
// summed up. Counters keep what closed Gates have added. It fails for a nil Gate.
func (s *Signals) Watch(gate *core.Gate) error {
	if !s.reporter.Watch(gate) {
		return errors.New("otelgate: the Gate is missing")
	}
	return nil
}

// Close ends the metrics that are read when they are collected: all counters, and what Watch has
// added. Call it after the Gate's Close, if the program goes on.
func (s *Signals) Close() error {
	if err := s.reading.Unregister(); err != nil {
		return fmt.Errorf("otelgate: %w", err)
	}
	return nil
}
