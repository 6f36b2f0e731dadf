package otelgate

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/headgate/headgate/internal/series"
	"github.com/headgate/headgate/observe/internal/report"
)

// instruments are the instruments of all series. Counters are kept here, and read when metrics are
// collected: an SDK takes ten times as long to add to one.
type instruments struct {
	reporter *report.Reporter
	told     map[*series.Series]any                      // of gauges and histograms that events change
	read     map[*series.Series]metric.Float64Observable // of all others

	mu       sync.Mutex
	counters []*counter
}

// make makes the instruments.
func (i *instruments) make(meter metric.Meter) (metric.Registration, error) {
	var errs []error
	var observables []metric.Observable
	for _, s := range series.All() {
		made, err := instrument(meter, s)
		errs = append(errs, err)
		if o, ok := made.(metric.Float64Observable); ok && (s.Read || s.Kind == series.Counter) {
			i.read[s] = o
			observables = append(observables, o)
			continue
		}
		i.told[s] = made
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return meter.RegisterCallback(i.collect, observables...)
}

func instrument(meter metric.Meter, s *series.Series) (any, error) {
	help, unit := metric.WithDescription(s.Help), metric.WithUnit(s.Unit)
	switch {
	case s.Kind == series.Counter:
		return meter.Float64ObservableCounter(s.Name, help, unit)
	case s.Kind == series.Histogram:
		bounds := metric.WithExplicitBucketBoundaries(s.Buckets...)
		return meter.Float64Histogram(s.Name, help, unit, bounds)
	case s.Read:
		return meter.Float64ObservableGauge(s.Name, help, unit)
	default:
		return meter.Float64Gauge(s.Name, help, unit)
	}
}

// collect tells what is read.
func (i *instruments) collect(_ context.Context, o metric.Observer) error {
	i.mu.Lock()
	counters := i.counters
	i.mu.Unlock()
	for _, c := range counters {
		o.ObserveFloat64(c.observable, c.value(), c.set)
	}
	i.reporter.Read(func(s *series.Series, values []string, value float64) {
		o.ObserveFloat64(i.read[s], value, metric.WithAttributeSet(i.attributes(s, values)))
	})
	return nil
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
	options := []metric.RecordOption{set}
	switch made := i.told[s].(type) {
	case metric.Float64Histogram:
		return func(ctx context.Context, value float64) { made.Record(ctx, value, options...) }
	case metric.Float64Gauge:
		return func(ctx context.Context, value float64) { made.Record(ctx, value, options...) }
	}
	c := &counter{observable: i.read[s], set: set}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.counters = append(i.counters, c)
	return c.add
}
