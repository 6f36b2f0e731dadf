package core_test

import (
	"context"
	"strings"
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
		var seen evalCounter
		client.AddHook(&seen)
		g := redisGate(t, client, core.Config{})
		decide(t, g, core.Charge{Policy: limited(t, "p", frozen(100)), Key: newKey(t, "k"), Cost: 1})
		if n := seen.Load(); n == 0 {
			t.Errorf("inline %v: the hook was not called", inline)
		}
	}
}

// evalCounter is a hook that counts scripts.
type evalCounter struct{ atomic.Int64 }

func (*evalCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*evalCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *evalCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			h.Add(1)
		}
		return next(ctx, cmd)
	}
}
