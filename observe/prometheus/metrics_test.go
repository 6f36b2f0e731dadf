package promgate_test

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/eventtest"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/series"
	promgate "github.com/headgate/headgate/observe/prometheus"
)

func newMetrics(t testing.TB, cfg promgate.Config) (*promgate.Metrics, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	cfg.Registerer = registry
	m := core.Must(promgate.New(cfg))
	return m, registry
}

func gather(t testing.TB, registry *prometheus.Registry) map[string][]*dto.Metric {
	t.Helper()
	families := gatetest.Must(registry.Gather())(t)
	metrics := make(map[string][]*dto.Metric)
	for _, f := range families {
		metrics[f.GetName()] = f.GetMetric()
	}
	return metrics
}

func TestEveryEventReachesASeries(t *testing.T) {
	reached := make(map[string]bool)
	for _, e := range eventtest.All(t) {
		m, registry := newMetrics(t, promgate.Config{})
		m.Observe(t.Context(), e)
		found := gather(t, registry)
		if len(found) == 0 {
			t.Errorf("%T %s reached no series", e, e.EventName())
		}
		for name := range found {
			reached[name] = true
		}
	}
	for _, s := range series.All() {
		if !s.Read && !reached[s.Prometheus()] {
			t.Errorf("no event reached %s", s.Prometheus())
		}
	}
}

func TestMetricsAreWellFormed(t *testing.T) {
	m, registry := newMetrics(t, promgate.Config{})
	for _, e := range eventtest.All(t) {
		m.Observe(t.Context(), e)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Error(err, problems)
	}
}

// The value of each series is that which the events say.
func TestValuesOfSeries(t *testing.T) {
	m, registry := newMetrics(t, promgate.Config{
		Tenant: func(_ context.Context, e core.Event) string {
			if d, ok := e.(*core.DecisionEvent); ok && len(d.Charges) > 0 {
				return strings.Trim(d.Charges[0].Key.String(), "{}")
			}
			return ""
		},
	})
	g := eventtest.Gate(t, core.Config{Observe: m.Observe})
	policy, key := eventtest.Policy(t, "api", 2), eventtest.Key(t)
	for range 5 {
		gatetest.Must(g.Decide(t.Context(), core.Charge{Policy: policy, Key: key}))(t)
	}
	for _, op := range []core.Op{core.OpCircuitOpened, core.OpCircuitClosed, core.OpCircuitOpened} {
		m.Observe(t.Context(), &core.ServerEvent{Op: op, Node: "a:1"})
	}
	want := `
# HELP headgate_circuit_open 1 while the circuit of a server is open, 0 after it has closed.
# TYPE headgate_circuit_open gauge
headgate_circuit_open{node="a:1"} 1
# HELP headgate_requests_total Charges that were decided on, one for each policy of a request.
# TYPE headgate_requests_total counter
headgate_requests_total{policy="api",result="allowed",source="memory",tenant="acme"} 2
headgate_requests_total{policy="api",result="denied",source="memory",tenant="acme"} 3
`
	err := testutil.GatherAndCompare(registry, strings.NewReader(want), "headgate_circuit_open", "headgate_requests_total")
	if err != nil {
		t.Error(err)
	}
	m.Observe(t.Context(), &core.DecisionEvent{Op: core.OpPeek, Took: time.Second})
	slow := slices.DeleteFunc(gather(t, registry)["headgate_decision_duration_seconds"], func(m *dto.Metric) bool {
		return m.GetLabel()[0].GetValue() != "peek" // a decision above may have been slow too
	})
	if len(slow) != 1 || slow[0].GetHistogram().GetSampleCount() != 1 || slow[0].GetHistogram().GetSampleSum() != 1 {
		t.Errorf("durations: %v", slow)
	}
}

// Watch tells the round trips to Redis, and slots while they are held.
func TestWatchReadsGate(t *testing.T) {
	redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
		m, registry := newMetrics(t, promgate.Config{})
		g := core.Must(core.NewRedis(srv.Client(t), core.Config{Prefix: srv.Prefix, Observe: m.Observe, Timeout: time.Minute}))
		t.Cleanup(func() { _ = g.Close(context.Background()) })
		gatetest.NoError(t, m.Watch(g))
		if m.Watch(nil) == nil {
			t.Error("a nil Gate is no error")
		}
		s := core.Must(semaphore.New(g, semaphore.Config{Name: "streams"}))
		policy, key := eventtest.Policy(t, "api", 100), eventtest.Key(t)
		for range 3 {
			gatetest.Must(g.Decide(t.Context(), core.Charge{Policy: policy, Key: key}))(t)
		}
		l := gatetest.Must(s.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{{Key: key, Limit: 1}}}))(t)
		got := gather(t, registry)
		trips := got["headgate_round_trips_total"]
		if len(trips) == 0 || trips[0].GetCounter().GetValue() < 4 || trips[0].GetLabel()[0].GetValue() == "" {
			t.Errorf("round trips: %v", trips)
		}
		if calls := got["headgate_round_trip_calls_total"]; len(calls) == 0 || calls[0].GetCounter().GetValue() < 4 {
			t.Errorf("calls: %v", calls)
		}
		if took := got["headgate_round_trip_time_seconds_total"]; len(took) == 0 || took[0].GetCounter().GetValue() <= 0 {
			t.Errorf("time: %v", took)
		}
		held := got["headgate_active_request_leases"]
		if len(held) != 1 || held[0].GetGauge().GetValue() != 1 {
			t.Errorf("slots: %v", held)
		}
		gatetest.NoError(t, l.Release(t.Context()))
		held = gather(t, registry)["headgate_active_request_leases"]
		if len(held) != 1 || held[0].GetGauge().GetValue() != 0 {
			t.Errorf("slots after the release: %v", held)
		}
	})
}

func TestFaultsOfConfig(t *testing.T) {
	registry := prometheus.NewRegistry()
	core.Must(promgate.New(promgate.Config{Registerer: registry}))
	for name, cfg := range map[string]promgate.Config{
		"registered twice":   {Registerer: registry},
		"MaxTenants below 0": {Registerer: prometheus.NewRegistry(), MaxTenants: -1},
	} {
		if _, err := promgate.New(cfg); err == nil || !strings.HasPrefix(err.Error(), "promgate: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A program that makes metrics of Prometheus links nothing of OpenTelemetry, and no framework.
func TestLinksNoOtherExporter(t *testing.T) {
	out := gatetest.Must(exec.Command("go", "list", "-deps", ".").Output())(t)
	for _, foreign := range []string{"go.opentelemetry.io", "gin-gonic", "go-chi", "labstack", "goccy", "aws", "/adapters/", "/plans"} {
		i := slices.IndexFunc(strings.Fields(string(out)), func(p string) bool { return strings.Contains(p, foreign) })
		if i >= 0 {
			t.Errorf("the package links %s", strings.Fields(string(out))[i])
		}
	}
}

func BenchmarkOverhead(b *testing.B) {
	m, _ := newMetrics(b, promgate.Config{})
	eventtest.Overhead(b, m.Observe)
}
