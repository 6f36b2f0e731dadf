package core_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/redistest"
)

// Some services refuse scripts with more than 3,999 arguments. A crowd of callers stays below that,
// also if each has limits of its own, as plans give them.
func TestArgumentsOfScriptsAreBounded(t *testing.T) {
	t.Parallel()
	window := func(limit, n int) core.Window {
		return core.Window{Limit: int64(limit), Width: time.Duration(n) * time.Hour}
	}
	for name, tt := range map[string]struct {
		charges int
		limit   func(caller int) core.Algorithm
	}{
		"sliding logs": {4, func(i int) core.Algorithm {
			return core.SlidingLog{Windows: []core.Window{
				window(1000+i, 1), window(2000+i, 2), window(3000+i, 3), window(4000+i, 4),
			}}
		}},
		"buckets": {16, func(i int) core.Algorithm { return core.TokenBucket{Burst: int64(1000 + i)} }},
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			client := s.Client(t)
			var largest atomic.Int64 // the most KEYS and ARGV of one script
			client.AddHook(onScripts(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				for _, cmd := range cmds {
					n := int64(len(cmd.Args()) - 3)
					for most := largest.Load(); n > most && !largest.CompareAndSwap(most, n); most = largest.Load() {
					}
				}
				return send()
			}))
			g := redisGate(t, client, core.Config{Prefix: s.Prefix})
			var policies []*core.Policy
			for j := range tt.charges {
				policies = append(policies, limited(t, fmt.Sprint("p", j), tt.limit(0)))
			}
			var callers sync.WaitGroup
			for i := range 600 {
				callers.Go(func() {
					key, limit := newKey(t, fmt.Sprint("k", i)), tt.limit(i)
					var charges []core.Charge
					for _, p := range policies {
						charges = append(charges, core.Charge{Policy: p, Key: key, Limit: limit})
					}
					for range 3 {
						r, d, err := g.Charge(t.Context(), charges...)
						if err != nil || !d.Allowed || d.Source != core.SourceRedis {
							t.Errorf("%s, %v", show(d), err)
							return
						}
						worked(t, r.Cancel(t.Context()))
					}
					if d := peek(t, g, charges...); d.At(0).Used != 0 {
						t.Errorf("%s", show(d))
					}
				})
			}
			callers.Wait()
			most := largest.Load()
			t.Logf("the largest script had %d arguments", most)
			if most > trips.MaxArguments || most < trips.MaxArguments/4 {
				t.Errorf("the largest script had %d arguments, want at most %d, and not far from it",
					most, trips.MaxArguments)
			}
		})
	}
}
