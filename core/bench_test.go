package core_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// floor is the cheapest script that keeps a count. No limiter can have a lower ratio to PING.
var floor = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local at = math.max(now, tonumber(redis.call('GET', KEYS[1]) or 0)) + 1
redis.call('SET', KEYS[1], at, 'PX', 1000)
return {at - now}`)

// BenchmarkDecide times one caller against a PING on the same connection pool, and so does the
// floor. Blocks of both alternate, so that other load on the machine affects both. The ratio of a
// block covers the time of all its calls.
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
	ping := func(b *testing.B, client *redis.Client) func() {
		return func() {
			if err := client.Ping(ctx).Err(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("redis/floor", func(b *testing.B) {
		client := redistest.Real(b).Client(b)
		call := func() {
			if err := floor.Run(ctx, client, []string{"floor"}).Err(); err != nil {
				b.Fatal(err)
			}
		}
		ratio := gatetest.Paired(call, ping(b, client))
		for b.Loop() {
			call()
		}
		b.ReportMetric(ratio, "xPING")
	})
	spent := core.TokenBucket{Rate: 1, Per: 24 * time.Hour, Burst: 1}
	for name, bench := range map[string]struct {
		limit core.Algorithm
		cfg   core.Config
	}{
		"allowed":          {core.PerSecond(1_000_000), core.Config{}},
		"denied":           {spent, core.Config{}},
		"denied, no cache": {spent, core.Config{DisableDenialCache: true}},
	} {
		b.Run("redis/"+name, func(b *testing.B) {
			server := redistest.Real(b)
			client := server.Client(b)
			gate, err := core.NewRedis(client, bench.cfg)
			if err != nil {
				b.Fatal(err)
			}
			charge := core.Charge{Policy: newPolicy(bench.limit), Key: key, Cost: 1}
			decide := func() {
				if d, err := gate.Decide(ctx, charge); err != nil || d.Cause != nil {
					b.Fatal(err, d.Cause)
				}
			}
			ratio := gatetest.Paired(decide, ping(b, client))
			b.ReportAllocs()
			for b.Loop() {
				decide()
			}
			b.ReportMetric(ratio, "xPING")
		})
	}
	for name, limit := range map[string]core.Algorithm{"allowed": core.PerSecond(1_000_000), "denied": spent} {
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
