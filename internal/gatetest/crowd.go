package gatetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// Others asks now and then, as another user does, until the returned function is called. Nothing but
// Redis decides for that user.
func Others(t *testing.T, g *core.Gate) (stop func()) {
	t.Helper()
	login := Policy(t, core.PolicyConfig{
		Name: "login", Algorithm: core.PerSecond(1_000_000), OnFailure: core.FailClosed,
	})
	over := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			case <-time.After(2 * time.Millisecond):
			}
			key := Key(t, fmt.Sprint("other", i%10))
			d, err := g.Decide(context.Background(), core.Charge{Policy: login, Key: key, Cost: 1})
			if err != nil || !d.Allowed {
				t.Errorf("another user is denied by %v: %v, %v", d.Source, d.Cause, err)
			}
		}
	})
	return func() { close(over); asking.Wait() }
}

// ViaRedis peeks until Redis decides again. It waits for a circuit to close, so only a generous
// context ends it.
func ViaRedis(t *testing.T, g *core.Gate, c core.Charge) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		d, err := g.Peek(ctx, c)
		if err != nil {
			t.Fatalf("Redis never decided again: %v, last source %v: %v", err, d.Source, d.Cause)
		}
		if d.Source == core.SourceRedis {
			return
		}
	}
}

// OnNodes returns keys whose hash slots lie on these nodes of a cluster.
func OnNodes(
	t *testing.T, client *redis.ClusterClient, nodes ...*redistest.Server,
) []core.Key {
	t.Helper()
	keys := make([]core.Key, len(nodes))
	for i, n := range nodes {
		for j := 0; ; j++ {
			k := Key(t, fmt.Sprintf("tenant%d", j))
			m, err := client.MasterForKey(t.Context(), k.String())
			if err != nil {
				t.Fatal(err)
			}
			if m.Options().Addr == n.Addr {
				keys[i] = k
				break
			}
		}
	}
	return keys
}
