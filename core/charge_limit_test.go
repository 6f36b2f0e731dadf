package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/redistest"
)

// One state has one limit in a decision. Otherwise each charge would be checked as if it were alone.
func TestTwoLimitsOfOneKeyAreAnError(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		p, key := limited(t, "p", frozen(1)), newKey(t, "k")
		charge := func(a core.Algorithm) core.Charge { return core.Charge{Policy: p, Key: key, Cost: 6, Limit: a} }
		_, err := g.Decide(t.Context(), charge(frozen(10)), charge(frozen(11)))
		gatetest.Is(t, err, core.ErrCharge, "two limits")
		denies(t, g, charge(frozen(10)), charge(frozen(10)))
		log := func() core.Algorithm { return core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Hour}}} }
		denies(t, g, charge(log()), charge(log()))
		admits(t, g, charge(embedded{TokenBucket: frozen(20)})) // has no ==
		noError(t, g.Reset(t.Context(), charge(frozen(20))))
		// Limits of different algorithms have states of their own.
		admits(t, g, charge(frozen(10)), charge(log()))
	})
}

// A caller that has many limits compiled anew meanwhile does not change what others are admitted.
func TestEqualLimitsAreOneLimit(t *testing.T) {
	g := memoryGate(t, core.Config{})
	p, other := limited(t, "p", frozen(1)), newKey(t, "other")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range int64(20_000) {
			_, _ = g.Peek(context.Background(), core.Charge{Policy: p, Key: other, Cost: core.NoCost, Limit: frozen(i + 100)})
		}
	}()
	key := newKey(t, "k")
	for run := true; run; {
		c := core.Charge{Policy: p, Key: key, Cost: 6, Limit: frozen(10)}
		if d, err := g.Decide(t.Context(), c, c); err != nil || d.Allowed {
			t.Fatalf("12 of 10: %s, %v", show(d), err)
		}
		select {
		case <-done:
			run = false
		default:
		}
	}
}

type embedded struct {
	core.TokenBucket
	_ []string
}

// A limit that cannot be compared is compiled each time.
// Reset forgets the states of the charges' own limits.
func TestResetHeedsTheChargesLimit(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		p := limited(t, "p", core.Calendar{Limit: 1, Every: core.PeriodMonth, In: time.UTC})
		anchor := time.Date(2025, 1, 17, 9, 0, 0, 0, time.UTC)
		charges := []core.Charge{
			{Policy: p, Key: newKey(t, "a"), Cost: 1, Limit: core.Calendar{Limit: 1, Every: core.PeriodMonth, In: time.UTC, Anchor: anchor}},
			{Policy: p, Key: newKey(t, "b"), Cost: 1},
		}
		decide(t, g, charges...)
		noError(t, g.Reset(t.Context(), charges...))
		admits(t, g, charges...)
		gatetest.Is(t, g.Reset(t.Context()), core.ErrCharge, "Reset of nothing")
		gatetest.Is(t, g.Reset(t.Context(), core.Charge{Key: charges[0].Key}), core.ErrCharge, "nil policy")
		gatetest.Is(t, g.Reset(t.Context(), core.Charge{Policy: p}), core.ErrKey, "no key")
	})
}

// An observer may call the Gate, and panic, whatever it is told.
func TestObserverCallsTheGate(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	var g *core.Gate
	c := core.Charge{Policy: limited(t, "p", frozen(10)), Key: newKey(t, "k"), Cost: 1}
	told := make(chan struct{}, 8)
	g = redisGate(t, client, core.Config{Observe: func(ctx context.Context, e core.Event) {
		if !isOp(e, core.OpScriptMissing) {
			return
		}
		defer func() { told <- struct{}{} }()
		if d, err := g.Peek(ctx, c); err != nil || d.Source != core.SourceRedis {
			t.Errorf("Peek: %s, %v", show(d), err)
		}
	}})
	for range 2 {
		if d := decide(t, g, c); !d.Allowed || d.Source != core.SourceRedis {
			t.Errorf("from %v: %s", d.Source, show(d))
		}
	}
	<-told
	gatetest.NoError(t, g.Close(t.Context()))
	if n := len(told); n > 1 { // where the machine is busy, a probe asks by another script
		t.Errorf("%d more scripts were missing", n)
	}
}

// The cache of denials keeps no part of a key that has no bound.
func TestLongKeysAreKnown(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
		c := core.Charge{Policy: limited(t, "p", frozen(1)), Key: newKey(t, strings.Repeat("x", 1<<16)), Cost: 2}
		for i := range 2 {
			if d := decide(t, g, c); d.Allowed || (d.Source == core.SourceCache) != (i == 1) {
				t.Errorf("%d from %v", i, d.Source)
			}
		}
	})
}

// A Charge without a Cost costs 1 whatever decides on it, and one of NoCost nothing.
func TestCostZeroMeansOne(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		p, q := limited(t, "p", frozen(4)), limited(t, "q", frozen(4))
		key := newKey(t, "k")
		one, none := core.Charge{Policy: p, Key: key}, core.Charge{Policy: q, Key: key, Cost: core.NoCost}
		for i, spend := range []func() (core.Decision, error){
			func() (core.Decision, error) { return g.Decide(t.Context(), one, none) },
			func() (core.Decision, error) {
				_, d, err := g.Charge(t.Context(), one, none)
				return d, err
			},
			func() (core.Decision, error) {
				_, d, err := g.Reserve(t.Context(), 0, one, none)
				return d, err
			},
			func() (core.Decision, error) {
				_, d, err := g.SpendUpTo(t.Context(), 1, one, none)
				return d, err
			},
		} {
			if d := peek(t, g, one); !d.Allowed || d.At(0).Used != int64(i) {
				t.Errorf("before %d: %s", i, show(d))
			}
			d, err := spend()
			if err != nil || !d.Allowed || d.At(0).Used != int64(i+1) || d.At(1).Used != 0 {
				t.Errorf("%d: %s, %v", i, show(d), err)
			}
		}
		if d := peek(t, g, one); d.Allowed {
			t.Errorf("a fifth unit fits: %s", show(d))
		}
		if d := peek(t, g, core.Charge{Policy: p, Key: key, Cost: core.NoCost}); !d.Allowed {
			t.Errorf("nothing does not fit: %s", show(d))
		}
	})
}

// AllowN counts as AllowN of golang.org/x/time/rate does: 0 units are nothing.
func TestLimiterSpendsNothingForZero(t *testing.T) {
	g := memoryGate(t, core.Config{})
	l := gatetest.Must(core.NewLimiter(g, limited(t, "p", core.PerHour(1))))(t)
	key := newKey(t, "k")
	for range 2 {
		if d, err := l.AllowN(t.Context(), key, 0); err != nil || !d.Allowed || d.At(0).Used != 0 {
			t.Errorf("AllowN of 0: %s, %v", show(d), err)
		}
	}
	for _, n := range []int64{-1, -2} {
		gatetest.Is(t, gatetest.Err(l.AllowN(t.Context(), key, n)), core.ErrCharge, "AllowN of %d", n)
		if _, _, err := l.Reserve(t.Context(), time.Hour, key, n); !errors.Is(err, core.ErrCharge) {
			t.Errorf("Reserve of %d: %v", n, err)
		}
		gatetest.Is(t, gatetest.Err(l.WaitN(t.Context(), key, n)), core.ErrCharge, "WaitN of %d", n)
	}
}

// A window denies nothing if a longer one has no larger limit.
func TestShorterWindowWithoutSmallerLimit(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		c := core.Charge{Key: newKey(t, "k"), Policy: limited(t, "p", core.SlidingLog{Windows: []core.Window{
			{Limit: 5, Width: time.Second}, {Limit: 2, Width: time.Hour},
		}})}
		decide(t, g, c)
		decide(t, g, c)
		d := decide(t, g, c)
		if r := d.At(0); d.Allowed || r.Violates(0) || !r.Violates(1) || r.Remaining != 0 || r.Limit != 2 {
			t.Error(show(d))
		}
	})
}

// TestConformance proves that n are back at most one bucket after the window, and none before.
func TestAnyWindow(t *testing.T) {
	for name, tt := range map[string]struct{ got, want core.SlidingWindow }{
		"second": {core.AnySecond(10), core.SlidingWindow{Limit: 10, Window: time.Second, Buckets: 50}},
		"minute": {core.AnyMinute(10), core.SlidingWindow{Limit: 10, Window: time.Minute, Buckets: 60}},
		"hour":   {core.AnyHour(10), core.SlidingWindow{Limit: 10, Window: time.Hour, Buckets: 60}},
	} {
		gatetest.Equal(t, tt.got, tt.want, "%s", name)
	}
}

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
		"a log of eight windows": {1, func(i int) core.Algorithm {
			var windows []core.Window
			for n := range 8 {
				windows = append(windows, window(1000*(n+1)+i, n+1))
			}
			return core.SlidingLog{Windows: windows}
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
