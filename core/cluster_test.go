package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

func TestChargesAcrossClusterNodes(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	for name, change := range map[string]func(o *redis.ClusterOptions){
		// Left alone, these two clients wait for an answer for ever.
		"default":               func(o *redis.ClusterOptions) { o.ReadTimeout = -1 },
		"ContextTimeoutEnabled": func(o *redis.ClusterOptions) { o.ReadTimeout, o.ContextTimeoutEnabled = -1, true },
		// Left alone, this client sends an unanswered command again, well within the decision's
		// deadline.
		"short-ReadTimeout": func(o *redis.ClusterOptions) { o.ReadTimeout = busyTimeout },
	} {
		t.Run(name, func(t *testing.T) {
			client, prefix := cluster.Client(t, change), name
			keys := gatetest.OnNodes(t, client, cluster.Nodes...)
			var events []core.ReservationEvent
			var mu sync.Mutex
			observe := func(_ context.Context, e core.Event) {
				mu.Lock()
				defer mu.Unlock()
				if isOp(e, core.OpRefundFailed) {
					events = append(events, *e.(*core.ReservationEvent))
				}
			}
			g := redisGate(t, client, core.Config{Prefix: prefix, Observe: observe})
			noError(t, g.Ping(t.Context()))

			t.Run("refunds", func(t *testing.T) {
				many := core.Charge{Policy: limited(t, "many", frozen(1000)), Key: keys[0], Cost: 3}
				for i := range 20 {
					// A policy that has not denied yet goes last.
					few := core.Charge{Policy: limited(t, "few", frozen(5)), Key: keys[1], Cost: 1}
					d := decide(t, g, many, few)
					if d.Allowed != (i < 5) || d.Source != core.SourceRedis {
						t.Errorf("%d: %s", i, show(d))
					}
				}
				if d := peek(t, g, many); d.At(0).Used != 15 {
					t.Errorf("%s", show(d))
				}
				half := core.Charge{Policy: limited(t, "half", frozen(7)), Key: keys[2], Cost: 100}
				many.Cost = 100
				n, d, err := atMost(g, t.Context(), many, half)
				if n != 7 || err != nil || d.At(0).Used != 22 || d.At(1).Used != 7 {
					t.Errorf("SpendUpTo granted %d: %s, %v", n, show(d), err)
				}
				if d := peek(t, g, many); d.At(0).Used != 22 {
					t.Errorf("the rest of SpendUpTo was not refunded: %s", show(d))
				}
				for _, l := range limitsOfTen {
					p := limited(t, "reserved-"+strings.ReplaceAll(l.name, " ", "-"), l.algorithm)
					both := []core.Charge{{Policy: p, Key: keys[0], Cost: 4}, {Policy: p, Key: keys[1], Cost: 4}}
					r, _ := reserve(t, g, 0, both...)
					wantUsed(t, g, p, keys[0], 4)
					wantUsed(t, g, p, keys[1], 4)
					cancel(t, r)
					wantUsed(t, g, p, keys[0], 0)
					wantUsed(t, g, p, keys[1], 0)
				}
			})

			for _, m := range modes {
				t.Run("stopped master, "+m.name, func(t *testing.T) {
					timeout := 4 * shortTimeout
					if name == "short-ReadTimeout" {
						timeout *= 5
					}
					g := redisGate(t, client, core.Config{Prefix: prefix, Observe: observe, Timeout: timeout, Replicas: 100})
					first := core.Charge{Policy: limited(t, "first-"+m.name, frozen(100)), Key: keys[0], Cost: 1}
					second := core.Charge{
						Policy: newPolicy(t, core.PolicyConfig{Name: "second-" + m.name, Algorithm: frozen(100), OnFailure: m.mode}), Key: keys[1], Cost: 2,
					}
					gatetest.ViaRedis(t, g, first)
					gatetest.ViaRedis(t, g, second)
					again := redisGate(t, client, core.Config{Prefix: prefix})
					admits(t, again, first, second)
					var wg sync.WaitGroup
					for range 64 {
						wg.Go(func() { _, _ = again.Peek(t.Context(), second) })
					}
					wg.Wait()

					cluster.Nodes[1].Stop()
					d, err := whileStopped(t, cluster.Nodes[1], g, first, second)
					// A local share of 1 denies the cost of 2.
					allowed := m.mode == core.FailOpen
					if err != nil || d.Cause == nil || d.Source != m.source || d.Allowed != allowed {
						t.Errorf("%s from %v: %v, %v", show(d), d.Source, d.Cause, err)
					}
					if !d.At(0).Known || d.At(1).Known != (m.mode == core.FailLocal) {
						t.Errorf("%s", show(d))
					}
					cluster.Nodes[1].Continue()
					// The refund continues in the background, and Close waits for it.
					worked(t, g.Close(t.Context()))
					want := int64(1)
					if allowed {
						want = 2
					}
					if d := peek(t, again, first); d.At(0).Used != want {
						t.Errorf("the first part: %s", show(d))
					}
					if d := peek(t, again, second); d.At(0).Used > 4 {
						t.Errorf("the second part was spent more than once: %s", show(d))
					}
				})
			}
			mu.Lock()
			defer mu.Unlock()
			for _, e := range events {
				t.Errorf("refund failed: %v", e.Err)
			}
		})
	}
}

// A proxy that hides a cluster, as those of some services do, rejects scripts on keys of several hash
// slots. Ping finds it, even if it forbids INFO. With TopologyCluster everything works.
func TestProxyThatHidesACluster(t *testing.T) {
	t.Parallel()
	proxy := redistest.StartCluster(t, 1).Nodes[0] // one node with all slots
	do(t, proxy.Client(t), "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-info", "-cluster")
	client := proxy.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })

	err := redisGate(t, client, core.Config{}).Ping(t.Context())
	if !errors.Is(err, core.ErrMisconfigured) || !strings.Contains(fmt.Sprint(err), "TopologyCluster") {
		t.Errorf("Ping: %v", err)
	}

	g := redisGate(t, client, core.Config{Topology: core.TopologyCluster})
	if err := g.Ping(t.Context()); err != nil {
		t.Errorf("Ping with TopologyCluster: %v", err)
	}
	p := limited(t, "p", frozen(5))
	var callers sync.WaitGroup
	for i := range 64 {
		callers.Go(func() {
			c := core.Charge{Policy: p, Key: newKey(t, fmt.Sprint("k", i))}
			for n := range 10 {
				d, err := g.Decide(t.Context(), c)
				if err != nil || d.Source == core.SourceClosed || d.Allowed != (n < 5) {
					t.Errorf("decision %d: %s from %v, %v", n, show(d), d.Source, err)
				}
			}
		})
	}
	callers.Wait()
	sem := newSemaphore(t, g, semaphore.Config{TTL: time.Hour}) // so that waiters do not poll
	level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
	first := acquire(t, sem, level)
	second := enqueue(t, sem, level)
	release(t, first)
	release(t, <-second)
}
