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

// failOnce fails the next script while it is set.
type failOnce struct{ atomic.Bool }

func (f *failOnce) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *failOnce) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") && f.CompareAndSwap(true, false) {
			cmd.SetErr(errors.New("LOADING Redis is loading the dataset in memory"))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

func (f *failOnce) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A clamped cost is never charged as less than what fits, also where Redis does not tell the raise.
func TestClampWithoutTheRaise(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		c := newClock()
		client, fails := s.Client(t), new(failOnce)
		client.AddHook(fails)
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
