package core_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// 256 callers have mixed keys, costs and deadlines, and some give up, while scripts are flushed and
// connections die. No limit is exceeded, and every caller gets an answer.
func TestSharedRoundTripsUnderFaults(t *testing.T) {
	t.Run("one script", func(t *testing.T) {
		s := redistest.Start(t)
		commitStorm(t, redisGate(t, s.Client(t), core.Config{Timeout: time.Second}), s)
	})
	t.Run("a script for each slot", func(t *testing.T) {
		s := redistest.Start(t)
		g := redisGate(t, s.Client(t), core.Config{Timeout: time.Second})
		g.SplitByOutermost()
		commitStorm(t, g, s)
	})
	t.Run("cluster", func(t *testing.T) {
		c := redistest.StartCluster(t, 3)
		commitStorm(t, redisGate(t, c.Client(t), core.Config{Timeout: time.Second}), c.Nodes...)
	})
}

func commitStorm(t *testing.T, g *core.Gate, servers ...*redistest.Server) {
	limits := []core.Algorithm{
		frozen(100), core.FixedWindow{Limit: 100, Window: 24 * time.Hour, FromFirst: true}, core.SlidingWindow{Limit: 100, Window: 24 * time.Hour, Buckets: 10},
		core.SlidingLog{Windows: []core.Window{{Limit: 100, Width: 24 * time.Hour}}}, core.Calendar{Limit: 100, Every: core.PeriodYear, In: time.UTC},
	}
	var policies []*core.Policy
	for i, limit := range limits {
		policies = append(policies, newPolicy(t, core.PolicyConfig{Name: string(rune('p' + i)), Algorithm: limit, OnFailure: core.FailClosed}))
	}
	var keys []core.Key
	for i := range 4 {
		keys = append(keys, newKey(t, string(rune('a'+i)))) // each in its own hash slot
	}
	admitted := make([][4]atomic.Int64, len(limits))
	over := make(chan struct{})
	var faults, callers sync.WaitGroup
	for _, s := range servers {
		admin := s.Client(t)
		faults.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				case <-time.After(20 * time.Millisecond):
				}
				if i%2 == 0 {
					do(t, admin, "SCRIPT", "FLUSH")
				} else {
					do(t, admin, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
				}
			}
		})
	}
	for range 256 {
		callers.Go(func() {
			for range 10 {
				ctx, cancel := context.WithCancel(context.Background())
				switch rand.N(4) {
				case 0:
					go cancel()
				case 1:
					ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.Int64N(5e6)))
				}
				var charges []core.Charge
				key, cost := rand.N(len(keys)), int64(1+rand.N(3))
				used := rand.Perm(len(policies))[:1+rand.N(2)]
				for _, i := range used {
					charges = append(charges, core.Charge{Policy: policies[i], Key: keys[key], Cost: cost})
				}
				d, err := g.Decide(ctx, charges...)
				if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v", err)
				}
				if d.Allowed {
					for _, i := range used {
						admitted[i][key].Add(cost)
					}
				}
				cancel()
			}
		})
	}
	callers.Wait()
	close(over)
	faults.Wait()
	for i := range admitted {
		for k := range admitted[i] {
			if n := admitted[i][k].Load(); n > 100 || n == 0 {
				t.Errorf("%T: %d of 100 admitted", limits[i], n)
			}
		}
	}
	gatetest.ViaRedis(t, g, core.Charge{Policy: policies[0], Key: newKey(t, "z"), Cost: 1})
}
