package promgate_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/eventtest"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	promgate "github.com/headgate/headgate/observe/prometheus"
)

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

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) { // polls
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
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
	srv.Kill()
	eventually(t, "the circuit is open", func() bool {
		decide()
		return values(t, registry, "headgate_circuit_open")[srv.Addr] == 1
	})
	<-lease.Lost()
	eventually(t, "the lost lease is told", func() bool {
		return values(t, registry, "headgate_lease_changes_total")["lease lost,failed,streams"] == 1
	})
	srv.Restart()
	eventually(t, "the circuit is closed", func() bool {
		return values(t, registry, "headgate_circuit_open")[srv.Addr] == 0
	})
	decide()
	requests := values(t, registry, "headgate_requests_total")
	if requests["api,allowed,local"] == 0 || requests["api,allowed,redis"] < 2 {
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
	if nodes != 3 {
		t.Errorf("%v", values(t, registry, "headgate_round_trips_total"))
	}
}
