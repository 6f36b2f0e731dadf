package core_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/headgate/headgate/core"
)

// BenchmarkMemory times decisions in memory beside those of golang.org/x/time/rate. xRate is the
// ratio of the two. Their blocks alternate in the same run, so that other load on the machine
// affects both. With several keys, the other side is a sync.Map of limiters.
func BenchmarkMemory(b *testing.B) {
	ctx := context.Background()
	gate := func(b *testing.B) *core.Gate { return memoryGate(b, core.Config{}) }
	key := newKey(b, "tenant", "benchmark")
	run := func(b *testing.B, call func()) {
		bare := rate.NewLimiter(1_000_000, 1_000_000)
		ratio := beside(call, func() { bare.Allow() })
		b.ReportAllocs()
		for b.Loop() {
			call()
		}
		b.ReportMetric(ratio, "xRate")
	}
	for name, limit := range map[string]core.Algorithm{
		"allowed": core.PerSecond(1_000_000), "denied": core.TokenBucket{Rate: 1, Per: 24 * time.Hour, Burst: 1},
	} {
		b.Run(name, func(b *testing.B) {
			g, c := gate(b), core.Charge{Policy: limited(b, "api", limit), Key: key, Cost: 1}
			run(b, func() { _, _ = g.Decide(ctx, c) })
		})
	}
	b.Run("limiter", func(b *testing.B) {
		l, err := core.NewLimiter(gate(b), limited(b, "api", core.PerSecond(1_000_000)))
		if err != nil {
			b.Fatal(err)
		}
		run(b, func() { _, _ = l.Allow(ctx, key) })
	})
	for _, n := range []int{2, 4, 16} {
		b.Run(fmt.Sprint(n, " charges"), func(b *testing.B) {
			g := gate(b)
			var charges []core.Charge
			for i := range n {
				charges = append(charges, core.Charge{Policy: limited(b, fmt.Sprint("p", i), core.PerSecond(1_000_000)), Key: key, Cost: 1})
			}
			run(b, func() { _, _ = g.Decide(ctx, charges...) })
		})
	}
	for _, goroutines := range []int{1, 2} {
		for _, keys := range []int{1, 100_000} {
			b.Run(fmt.Sprintf("%d keys by %d", keys, goroutines), func(b *testing.B) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(goroutines))
				g, p := gate(b), limited(b, "api", core.PerSecond(1_000_000))
				charges := make([]core.Charge, keys)
				var limiters sync.Map
				for i := range charges {
					charges[i] = core.Charge{Policy: p, Key: newKey(b, "tenant", strconv.Itoa(i)), Cost: 1}
					limiters.Store(charges[i].Key, rate.NewLimiter(1_000_000, 1_000_000))
					decide(b, g, charges[i])
				}
				each := func(calls int, call func(c *core.Charge)) {
					var wg sync.WaitGroup
					for i := range goroutines {
						wg.Go(func() {
							at := i * keys / goroutines
							for range calls {
								call(&charges[at])
								at = (at + 7919) % keys
							}
						})
					}
					wg.Wait()
				}
				ours := func(c *core.Charge) { _, _ = g.Decide(ctx, *c) }
				theirs := func(c *core.Charge) {
					l, _ := limiters.Load(c.Key)
					l.(*rate.Limiter).Allow()
				}
				const calls = 10_000
				ratio := beside(func() { each(calls, ours) }, func() { each(calls, theirs) })
				b.ReportAllocs()
				b.ResetTimer()
				each((b.N+goroutines-1)/goroutines, ours)
				b.ReportMetric(ratio, "xRate")
			})
		}
	}
}

// beside returns the median ratio of the time of f to that of g, over many short alternating
// blocks.
func beside(f, g func()) float64 {
	calls := 1
	block := func(f func()) time.Duration {
		start := time.Now()
		for range calls {
			f()
		}
		return time.Since(start)
	}
	for block(g) < time.Millisecond {
		calls *= 2
	}
	ratios := make([]float64, 201)
	for i := range ratios {
		ratios[i] = float64(block(f)) / float64(block(g))
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2]
}
