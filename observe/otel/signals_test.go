package otelgate_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/eventtest"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	otelgate "github.com/headgate/headgate/observe/otel"
)

// sdk is an SDK that keeps everything in memory.
type sdk struct {
	reader *metric.ManualReader
	spans  *tracetest.InMemoryExporter
	cfg    otelgate.Config
}

func newSDK() *sdk {
	s := &sdk{reader: metric.NewManualReader(), spans: tracetest.NewInMemoryExporter()}
	s.cfg.MeterProvider = metric.NewMeterProvider(metric.WithReader(s.reader))
	s.cfg.TracerProvider = trace.NewTracerProvider(trace.WithSyncer(s.spans))
	return s
}

func (s *sdk) signals(t testing.TB) *otelgate.Signals {
	return core.Must(otelgate.New(s.cfg))
}

// metrics returns the values of all series that have one, by name and attributes. That of a
// histogram is its count.
func (s *sdk) metrics(t testing.TB) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	gatetest.NoError(t, s.reader.Collect(context.Background(), &all))
	values := make(map[string]float64)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			add := func(set attribute.Set, n float64) {
				values[strings.TrimSpace(m.Name+" "+set.Encoded(attribute.DefaultEncoder()))] = n
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[float64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, float64(p.Count))
				}
			default:
				t.Fatalf("%s is a %T", m.Name, m.Data)
			}
		}
	}
	return values
}

// Watch tells the round trips to Redis, and slots while they are held, until Close.
func TestWatchReadsGate(t *testing.T) {
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		s := newSDK()
		signals := s.signals(t)
		g := core.Must(core.NewRedis(srv.Client(t), core.Config{Prefix: srv.Prefix, Observe: signals.Observe, Timeout: time.Minute}))
		t.Cleanup(func() { _ = g.Close(context.Background()) })
		gatetest.NoError(t, signals.Watch(g))
		if signals.Watch(nil) == nil {
			t.Error("a nil Gate is no error")
		}
		streams := core.Must(semaphore.New(g, semaphore.Config{Name: "streams"}))
		l := gatetest.Must(streams.Acquire(t.Context(), semaphore.Request{
			Caps: []semaphore.Cap{{Key: eventtest.Key(t), Limit: 1}},
		}))(t)
		got := s.metrics(t)
		trips, calls := 0.0, 0.0
		for line, n := range got {
			if strings.HasPrefix(line, "headgate.round_trips node=") {
				trips += n
			} else if strings.HasPrefix(line, "headgate.round_trip.calls node=") {
				calls += n
			}
		}
		if trips < 1 || calls < 1 || got["headgate.active_request_leases semaphore=streams"] != 1 {
			t.Errorf("read %v", got)
		}
		gatetest.NoError(t, l.Release(t.Context()))
		if n, ok := s.metrics(t)["headgate.active_request_leases semaphore=streams"]; !ok || n != 0 {
			t.Errorf("%v slots after the release", n)
		}
		gatetest.NoError(t, signals.Close())
		if _, ok := s.metrics(t)["headgate.active_request_leases semaphore=streams"]; ok {
			t.Error("slots are read after Close")
		}
	})
}

// A span is made of what waited or failed, or of all, from the operation's start.
func TestSpans(t *testing.T) {
	policy, key := eventtest.Policy(t, "api", 10), eventtest.Key(t)
	g := eventtest.Gate(t, core.Config{})
	streams := core.Must(semaphore.New(g, semaphore.Config{Name: "streams"}))
	charges := []core.Charge{{Policy: policy, Key: key}}
	quick := &core.DecisionEvent{Op: core.OpDecide, Charges: charges, Took: time.Millisecond}
	failed := &core.DecisionEvent{Op: core.OpDecide, Charges: charges, Err: errors.New("no answer"), Took: time.Second}
	waited := &semaphore.AcquireEvent{Semaphore: streams, Source: core.SourceRedis, Waited: true, Took: time.Minute}
	granted := &semaphore.AcquireEvent{Semaphore: streams, Source: core.SourceRedis, Took: time.Millisecond}
	limiter := core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "limiter", Algorithm: core.TokenBucket{Rate: 1, Per: time.Hour, Burst: 1},
	}))
	var delayed *core.DecisionEvent
	for range 2 { // the second one is for later
		charge := core.Charge{Policy: limiter, Key: key}
		_, d, err := g.Reserve(t.Context(), core.Never, charge)
		gatetest.NoError(t, err)
		delayed = &core.DecisionEvent{
			Op: core.OpReserve, Decision: d, Charges: []core.Charge{charge}, Took: 2 * time.Millisecond,
		}
	}
	told := &core.ThresholdEvent{Policy: policy, Key: key, Percent: 80}
	for spans, want := range map[otelgate.Spans][]string{
		otelgate.SpansWaited: {"headgate decide 1s", "headgate acquire 1m0s", "headgate reserve 2ms"},
		otelgate.SpansAll:    {"headgate decide 1ms", "headgate decide 1s", "headgate acquire 1m0s", "headgate acquire 1ms", "headgate reserve 2ms"},
		otelgate.SpansNone:   nil,
	} {
		s := newSDK()
		s.cfg.Spans = spans
		signals := s.signals(t)
		ctx, parent := s.cfg.TracerProvider.Tracer("test").Start(t.Context(), "parent")
		for _, e := range []core.Event{quick, failed, waited, granted, delayed, told} {
			signals.Observe(ctx, e)
		}
		var got []string
		for _, span := range s.spans.GetSpans() {
			got = append(got, fmt.Sprint(span.Name, " ", span.EndTime.Sub(span.StartTime)))
			if span.Parent.SpanID() != parent.SpanContext().SpanID() {
				t.Errorf("%s is not below the caller's span", span.Name)
			}
			for _, a := range span.Attributes {
				if strings.Contains(a.Value.Emit(), eventtest.Tenant) {
					t.Errorf("an attribute of %s has a key: %v", span.Name, a)
				}
			}
			if fails := span.EndTime.Sub(span.StartTime) == time.Second; fails != (span.Status.Code == codes.Error) {
				t.Errorf("%s has the status %v", span.Name, span.Status)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v: spans %q, want %q", spans, got, want)
		}
	}
}

func TestFaultsOfConfig(t *testing.T) {
	_, err := otelgate.New(otelgate.Config{Spans: 9, MaxTenants: -1})
	if err == nil || !strings.Contains(err.Error(), "Config.Spans") || !strings.Contains(err.Error(), "Config.MaxTenants") {
		t.Error(err)
	}
	gatetest.Equal(t, otelgate.Spans(9).String()+otelgate.SpansNone.String(), "unknownnone", "got")
	// Without an SDK the providers of package otel do nothing.
	if signals, err := otelgate.New(otelgate.Config{}); err != nil {
		t.Error(err)
	} else {
		for _, e := range eventtest.All(t) {
			signals.Observe(t.Context(), e)
		}
	}
}

// A program that makes signals of OpenTelemetry links neither its SDK nor anything of Prometheus, and
// no framework.
func TestLinksNoOtherExporter(t *testing.T) {
	out := gatetest.Must(exec.Command("go", "list", "-deps", ".").Output())(t)
	for _, foreign := range []string{
		"prometheus", "go.opentelemetry.io/otel/sdk", "gin-gonic", "go-chi", "labstack", "goccy", "aws", "/adapters/", "/plans",
	} {
		i := slices.IndexFunc(strings.Fields(string(out)), func(p string) bool { return strings.Contains(p, foreign) })
		if i >= 0 {
			t.Errorf("the package links %s", strings.Fields(string(out))[i])
		}
	}
}

func BenchmarkOverhead(b *testing.B) {
	eventtest.Overhead(b, newSDK().signals(b).Observe)
}
