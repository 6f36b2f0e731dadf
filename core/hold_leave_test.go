package core_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// A caller that leaves while a charge with a Hold is on its way leaves nothing spent: nobody would
// settle it. The first decision of a Gate is sent by another goroutine, the later ones by the
// caller's own.
func TestCallerThatLeavesLeavesNoHold(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client := s.Client(t)
		var leave atomic.Pointer[context.CancelFunc] // when the next script is sent
		client.AddHook(onScripts(func(_ context.Context, _ []redis.Cmder, send func() error) error {
			if leave := leave.Swap(nil); leave != nil {
				(*leave)()
			}
			return send()
		}))
		g := redisGate(t, client, core.Config{Prefix: s.Prefix})
		p, key := heldFor(t, time.Hour), newKey(t, "k")
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			leave.Store(&cancel)
			r, d, err := g.Charge(ctx, core.Charge{Policy: p, Key: key, Cost: 4})
			if r != nil || d.Allowed || !errors.Is(err, context.Canceled) {
				t.Errorf("%s, %v", show(d), err)
			}
			wantUsed(t, g, p, key, 0)
		}
	})
}
