package core_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// Hooks of the user's client, such as tracing, see the decisions.
func TestHooksAreCalled(t *testing.T) {
	t.Parallel()
	for _, inline := range []bool{false, true} {
		s := redistest.Start(t)
		client := s.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = inline })
		var seen atomic.Int64
		client.AddHook(onScripts(func(_ context.Context, _ []redis.Cmder, send func() error) error {
			seen.Add(1)
			return send()
		}))
		g := redisGate(t, client, core.Config{})
		decide(t, g, core.Charge{Policy: limited(t, "p", frozen(100)), Key: newKey(t, "k"), Cost: 1})
		if n := seen.Load(); n == 0 {
			t.Errorf("inline %v: the hook was not called", inline)
		}
	}
}
