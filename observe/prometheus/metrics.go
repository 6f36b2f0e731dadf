package promgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/series"
	"github.com/headgate/headgate/observe/internal/report"
)

// Config configures Metrics.
type Config struct {
	// Registerer is where the metrics are registered. Nil means prometheus.DefaultRegisterer.
	Registerer prometheus.Registerer
	// Tenant returns the tenant of an event, such as a part of the key of a *core.DecisionEvent's
	// first charge, or "" if the event has none. The series that docs/observability.md marks have it
	// as the label tenant then. It must be safe for concurrent use. Nil leaves the label out.
	Tenant func(context.Context, core.Event) string
	// MaxTenants bounds the values of the label. Further tenants share the value "other". Zero means
	// 100.
	MaxTenants int
}

// Metrics turns events into metrics of Prometheus. It is a prometheus.Collector. It is safe for
// concurrent use.
type Metrics struct {
	reporter *report.Reporter
	vectors  vectors
	read     map[*series.Series]*prometheus.Desc
}

// vectors are the series that events change.
type vectors map[*series.Series]prometheus.Collector

// Instrument implements series.Exporter.
func (v vectors) Instrument(s *series.Series, values []string) series.Instrument {
	var record func(float64)
	switch made := v[s].(type) {
	case *prometheus.HistogramVec:
		record = made.WithLabelValues(values...).Observe
	case *prometheus.GaugeVec:
		record = made.WithLabelValues(values...).Set
	default:
		record = made.(*prometheus.CounterVec).WithLabelValues(values...).Add
	}
	return func(_ context.Context, value float64) { record(value) }
}

// New returns Metrics and registers them. Its error also says that others have registered the same
// names.
func New(cfg Config) (*Metrics, error) {
	m := &Metrics{
		vectors: make(vectors), read: make(map[*series.Series]*prometheus.Desc),
	}
	reporter, err := report.New(report.Config{
		Exporter: m.vectors, Tenant: cfg.Tenant, MaxTenants: cfg.MaxTenants,
	})
	if err != nil {
		return nil, fmt.Errorf("promgate: %w", err)
	}
	m.reporter = reporter
	for _, s := range series.All() {
		if s.Read {
			m.read[s] = prometheus.NewDesc(s.Prometheus(), s.Help, s.Labels, nil)
		} else {
			m.vectors[s] = newVector(s, reporter.Labels(s))
		}
	}
	if err := cmp.Or(cfg.Registerer, prometheus.DefaultRegisterer).Register(m); err != nil {
		return nil, fmt.Errorf("promgate: %w", err)
	}
	return m, nil
}

// newVector returns what counts a series, other than one that is read.
func newVector(s *series.Series, labels []string) prometheus.Collector {
	opts := prometheus.Opts{Name: s.Prometheus(), Help: s.Help}
	switch s.Kind {
	case series.Histogram:
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: opts.Name, Help: opts.Help, Buckets: s.Buckets,
		}, labels)
	case series.Gauge:
		return prometheus.NewGaugeVec(prometheus.GaugeOpts(opts), labels)
	default:
		return prometheus.NewCounterVec(prometheus.CounterOpts(opts), labels)
	}
}

// Observe records an event. It is for core.Config.Observe, and for the Observe of the other
// packages' configurations.
func (m *Metrics) Observe(ctx context.Context, e core.Event) { m.reporter.Observe(ctx, e) }

// Watch adds what no event of the Gate tells, until it is closed: its round trips, the slots that
// this process holds, and its callers that wait for one. Gates with semaphores of one name are
// summed up. Counters keep what closed Gates have added. It fails for a nil Gate.
func (m *Metrics) Watch(gate *core.Gate) error {
	if !m.reporter.Watch(gate) {
		return errors.New("promgate: the Gate is missing")
	}
	return nil
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) {
	for _, s := range series.All() {
		if s.Read {
			descs <- m.read[s]
		} else {
			m.vectors[s].Describe(descs)
		}
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	for _, v := range m.vectors {
		v.Collect(metrics)
	}
	m.reporter.Read(func(s *series.Series, values []string, value float64) {
		kind := prometheus.CounterValue
		if s.Kind == series.Gauge {
			kind = prometheus.GaugeValue
		}
		metrics <- prometheus.MustNewConstMetric(m.read[s], kind, value, values...)
	})
}
