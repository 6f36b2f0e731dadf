package core_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/redistest"
)

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
