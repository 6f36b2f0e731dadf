package otelgate

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/headgate/headgate/internal/series"
	"github.com/headgate/headgate/observe/internal/report"
)

// instruments are the instruments of all series.
type instruments struct {
	reporter *report.Reporter
	byName   map[*series.Series]any
}

// make makes the instruments, and has those that no event changes read from the Gates.
func (i *instruments) make(meter metric.Meter) (metric.Registration, error) {
	var errs []error
	read := make(map[*series.Series]metric.Float64Observable)
	var observables []metric.Observable
	for _, s := range series.All() {
		made, err := instrument(meter, s)
		errs = append(errs, err)
		if o, ok := made.(metric.Float64Observable); ok && s.Read {
			read[s] = o
			observables = append(observables, o)
			continue
		}
		i.byName[s] = made
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		i.reporter.Read(func(s *series.Series, values []string, value float64) {
			o.ObserveFloat64(read[s], value, metric.WithAttributeSet(i.attributes(s, values)))
		})
		return nil
	}, observables...)
}

func instrument(meter metric.Meter, s *series.Series) (any, error) {
	help, unit := metric.WithDescription(s.Help), metric.WithUnit(s.Unit)
	switch {
	case s.Kind == series.Histogram:
		bounds := metric.WithExplicitBucketBoundaries(s.Buckets...)
		return meter.Float64Histogram(s.Name, help, unit, bounds)
	case s.Kind == series.Gauge && s.Read:
		return meter.Float64ObservableGauge(s.Name, help, unit)
	case s.Kind == series.Gauge:
		return meter.Float64Gauge(s.Name, help, unit)
	case s.Read:
		return meter.Float64ObservableCounter(s.Name, help, unit)
	default:
		return meter.Float64Counter(s.Name, help, unit)
	}
}

func (i *instruments) attributes(s *series.Series, values []string) attribute.Set {
	var all []attribute.KeyValue
	for at, label := range i.reporter.Labels(s) {
		all = append(all, attribute.String(label, values[at]))
	}
	return attribute.NewSet(all...)
}

// Instrument implements series.Exporter. Options are made once, so that recording makes none.
func (i *instruments) Instrument(s *series.Series, values []string) series.Instrument {
	set := metric.WithAttributeSet(i.attributes(s, values))
	switch made := i.byName[s].(type) {
	case metric.Float64Histogram:
		return histogram{made, []metric.RecordOption{set}}
	case metric.Float64Counter:
		return counter{made, []metric.AddOption{set}}
	default:
		return gauge{made.(metric.Float64Gauge), []metric.RecordOption{set}}
	}
}

type counter struct {
	metric.Float64Counter
	set []metric.AddOption
}

func (c counter) Record(ctx context.Context, value float64) { c.Add(ctx, value, c.set...) }

type gauge struct {
	metric.Float64Gauge
	set []metric.RecordOption
}

func (g gauge) Record(ctx context.Context, value float64) {
	g.Float64Gauge.Record(ctx, value, g.set...)
}

type histogram struct {
	metric.Float64Histogram
	set []metric.RecordOption
}

func (h histogram) Record(ctx context.Context, value float64) {
	h.Float64Histogram.Record(ctx, value, h.set...)
}
