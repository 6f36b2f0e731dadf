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
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/eventtest"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
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
	gatetest.Worked(t, err)
	m.Observe(t.Context(), &core.DecisionEvent{Op: core.OpPeek, Took: time.Second})
	slow := slices.DeleteFunc(gather(t, registry)["headgate_decision_duration_seconds"], func(m *dto.Metric) bool {
		return m.GetLabel()[0].GetValue() != "peek" // a decision above may have been slow too
	})
	if len(slow) != 1 || slow[0].GetHistogram().GetSampleCount() != 1 || slow[0].GetHistogram().GetSampleSum() != 1 {
		t.Errorf("durations: %v", slow)
	}
}

func TestFaultsOfConfig(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := core.Must(promgate.New(promgate.Config{Registerer: registry}))
	gatetest.Fails(t, m.Watch(nil), "a nil Gate")
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

// values returns the values of a counter or a gauge by the values of its labels.
func values(t *testing.T, registry *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	all := make(map[string]float64)
	for _, m := range gather(t, registry)[name] {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetValue())
		}
		all[strings.Join(labels, ",")] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return all
}

// An outage shows: the circuit opens and closes, the failure mode decides, and a lease is lost.
func TestOutage(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	m, registry := newMetrics(t, promgate.Config{})
	client := srv.Client(t, func(o *redis.Options) { o.DialerRetries = 1 })
	g := core.Must(core.NewRedis(client, core.Config{Observe: m.Observe}))
	t.Cleanup(func() { _ = g.Close(context.Background()) })
	gatetest.NoError(t, m.Watch(g))
	charge := eventtest.Charge(t)
	decide := func() {
		t.Helper()
		gatetest.Must(g.Decide(t.Context(), charge))(t)
	}
	decide()
	streams := core.Must(semaphore.New(g, semaphore.Config{Name: "streams", TTL: time.Second}))
	lease := gatetest.Must(streams.Acquire(t.Context(), semaphore.Request{
		Caps: []semaphore.Cap{{Key: charge.Key, Limit: 1}},
	}))(t)
	gatetest.Equal(t, values(t, registry, "headgate_active_request_leases")["streams"], 1, "slots")
	srv.Kill()
	gatetest.Eventually(t, "the circuit is open", func() bool {
		decide()
		return values(t, registry, "headgate_circuit_open")[srv.Addr] == 1
	})
	<-lease.Lost()
	gatetest.Eventually(t, "the lost lease is told", func() bool {
		return values(t, registry, "headgate_lease_changes_total")["lease lost,failed,streams"] == 1
	})
	srv.Restart()
	gatetest.Eventually(t, "the circuit is closed", func() bool {
		return values(t, registry, "headgate_circuit_open")[srv.Addr] == 0
	})
	gatetest.Eventually(t, "Redis decides again", func() bool { // a connection of the pool may still be a dead one
		decide()
		return values(t, registry, "headgate_requests_total")["api,allowed,redis"] >= 2
	})
	if requests := values(t, registry, "headgate_requests_total"); requests["api,allowed,local"] == 0 {
		t.Errorf("charges: %v", requests)
	}
	changes := values(t, registry, "headgate_circuit_changes_total")
	if changes[srv.Addr+",open"] != 1 || changes[srv.Addr+",closed"] != 1 {
		t.Errorf("changes of the circuit: %v", changes)
	}
	if n := values(t, registry, "headgate_round_trip_failures_total")[srv.Addr]; n == 0 {
		t.Error("no round trip has failed")
	}
}

// Each server of a cluster is a node.
func TestClusterHasNodes(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	m, registry := newMetrics(t, promgate.Config{})
	g := core.Must(core.NewRedis(cluster.Client(t), core.Config{Observe: m.Observe, Timeout: time.Minute}))
	t.Cleanup(func() { _ = g.Close(context.Background()) })
	gatetest.NoError(t, m.Watch(g))
	policy := eventtest.Policy(t, "api", 10)
	for i := range 64 {
		key := core.Must(core.NewKey(string(rune('0' + i))))
		gatetest.Must(g.Decide(t.Context(), core.Charge{Policy: policy, Key: key}))(t)
	}
	nodes := 0
	for node, trips := range values(t, registry, "headgate_round_trips_total") {
		if strings.HasPrefix(node, "127.0.0.1:") && trips > 0 {
			nodes++
		}
	}
	gatetest.Equal(t, nodes, 3, "%v", values(t, registry, "headgate_round_trips_total"))
}
