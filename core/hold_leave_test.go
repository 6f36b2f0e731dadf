package core_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// leaves ends its caller's context once, when the next script is sent.
type leaves struct {
	leave atomic.Pointer[context.CancelFunc]
}

func (h *leaves) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *leaves) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			if leave := h.leave.Swap(nil); leave != nil {
				(*leave)()
			}
		}
		return next(ctx, cmd)
	}
}

func (h *leaves) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A caller that leaves while a charge with a Hold is on its way leaves nothing spent: nobody would
// settle it. The first decision of a Gate is sent by another goroutine, the later ones by the
// caller's own.
func TestCallerThatLeavesLeavesNoHold(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client, hook := s.Client(t), new(leaves)
		client.AddHook(hook)
		g := redisGate(t, client, core.Config{Prefix: s.Prefix})
		p, key := heldFor(t, time.Hour), newKey(t, "k")
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			hook.leave.Store(&cancel)
			r, d, err := g.Charge(ctx, core.Charge{Policy: p, Key: key, Cost: 4})
			if r != nil || d.Allowed || !errors.Is(err, context.Canceled) {
				t.Errorf("%s, %v", show(d), err)
			}
			if n := used(t, g, p, key); n != 0 {
				t.Errorf("%d units are in use, want 0", n)
			}
		}
	})
}
