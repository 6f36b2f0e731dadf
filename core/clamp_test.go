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

// A clamped cost is never charged as less than what fits, also where Redis does not tell the raise.
func TestClampWithoutTheRaise(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		c := newClock()
		var fails atomic.Bool // the next script
		client := s.Client(t)
		client.AddHook(onScripts(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			if fails.CompareAndSwap(true, false) {
				return fail(cmds, errors.New("LOADING Redis is loading the dataset in memory"))
			}
			return send()
		}))
		g := redisGate(t, client, core.Config{Prefix: s.Prefix, DisableDenialCache: true})
		g.InjectClock(micros(c))
		p := newPolicy(t, core.PolicyConfig{
			Name: "p", Algorithm: frozen(100), Raisable: true, OnFailure: core.FailClosed,
		})
		charge := core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 500, Clamp: true}
		_, err := g.Adjust(t.Context(), core.Adjustment{
			ID: "top-up", Policy: p, Key: charge.Key, Raise: 900, Until: c.Now().Add(time.Hour),
		})
		if err != nil {
			t.Fatal(err)
		}
		fails.Store(true)
		d, err := g.Decide(t.Context(), charge)
		if r := d.At(0); err != nil || fails.Load() || d.Allowed && r.Used != 500 {
			t.Errorf("%v, failed %v: %s", err, !fails.Load(), show(d))
		}
	})
}
