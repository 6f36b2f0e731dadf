package core_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// BenchmarkDecide times one caller against a PING on the same connection pool. Both alternate in short blocks, so
// that what else the machine does falls on both, and a block's ratio is of the time for all its calls.
func BenchmarkDecide(b *testing.B) {
	ctx := context.Background()
	newPolicy := func(limit core.Algorithm) *core.Policy {
		p, err := core.NewPolicy(core.PolicyConfig{Name: "api", Algorithm: limit})
		if err != nil {
			b.Fatal(err)
		}
		return p
	}
	key, err := core.NewKey("tenant", "benchmark")
	if err != nil {
		b.Fatal(err)
	}
	for name, limit := range map[string]core.Algorithm{
		"allowed": core.PerSecond(1_000_000), "denied": core.TokenBucket{Rate: 1, Per: 24 * time.Hour, Burst: 1},
	} {
		b.Run("redis/"+name, func(b *testing.B) {
			server := redistest.Real(b)
			client := server.Client(b, func(o *redis.Options) { o.PoolSize = 4 })
			gate, err := core.NewRedis(client, core.Config{})
			if err != nil {
				b.Fatal(err)
			}
			charge := core.Charge{Policy: newPolicy(limit), Key: key, Cost: 1}
			decide := func() {
				if d, err := gate.Decide(ctx, charge); err != nil || d.Cause != nil {
					b.Fatal(err, d.Cause)
				}
			}
			ping := func() {
				if err := client.Ping(ctx).Err(); err != nil {
					b.Fatal(err)
				}
			}
			ratio := paired(decide, ping)
			b.ReportAllocs()
			for b.Loop() {
				decide()
			}
			b.ReportMetric(ratio, "xPING")
		})
		b.Run("memory/"+name, func(b *testing.B) {
			gate, err := core.NewMemory(core.Config{})
			if err != nil {
				b.Fatal(err)
			}
			charge := core.Charge{Policy: newPolicy(limit), Key: key, Cost: 1}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := gate.Decide(ctx, charge); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// paired is the median over many rounds of the time for a block of f over that of blocks of g before and after it.
func paired(f, g func()) float64 {
	block := func(f func()) time.Duration {
		start := time.Now()
		for range 200 {
			f()
		}
		return time.Since(start)
	}
	block(f)
	ratios := make([]float64, 61)
	before := block(g)
	for i := range ratios {
		own := block(f)
		after := block(g)
		ratios[i] = 2 * float64(own) / float64(before+after)
		before = after
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2]
}
