package core_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// serverTime returns the CPU seconds that a server has used.
func serverTime(b *testing.B, client *redis.Client) (sum float64) {
	b.Helper()
	text, err := client.Info(context.Background(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

// BenchmarkThroughput compares many concurrent callers with as many PINGs: how many more decisions
// they get in the same time, and how much CPU time the server spends on each.
func BenchmarkThroughput(b *testing.B) {
	ctx := context.Background()
	fast, spent := core.TokenBucket{Rate: 1_000_000, Per: time.Second, Burst: 1e12}, core.TokenBucket{Rate: 1, Per: 24 * time.Hour, Burst: 1}
	for _, callers := range []int{64, 256} {
		for _, tt := range []struct {
			name  string
			keys  int
			limit core.Algorithm
			asks  bool
		}{
			{"hot", 1, fast, false},
			{"spread", 100_000, fast, false},
			{"denied", 1, spent, false},
			{"denied, no cache", 1, spent, true},
		} {
			keys := tt.keys
			b.Run(strconv.Itoa(callers)+"/"+tt.name, func(b *testing.B) {
				server := redistest.Start(b)
				client := server.Client(b)
				gate, err := core.NewRedis(client, core.Config{Timeout: 10 * time.Second, DisableDenialCache: tt.asks})
				if err != nil {
					b.Fatal(err)
				}
				p, err := core.NewPolicy(core.PolicyConfig{Name: "api", Algorithm: tt.limit})
				if err != nil {
					b.Fatal(err)
				}
				charges := make([]core.Charge, keys)
				for i := range charges {
					k, err := core.NewKey("tenant", strconv.Itoa(i))
					if err != nil {
						b.Fatal(err)
					}
					charges[i] = core.Charge{Policy: p, Key: k, Cost: 1}
				}
				crowd := func(call func(i int)) (calls, cost float64) {
					before := serverTime(b, client)
					var wg sync.WaitGroup
					var done atomic.Int64
					end := time.Now().Add(30 * time.Millisecond)
					for c := range callers {
						wg.Go(func() {
							const some = 10 // between looks at the clock
							for i := c * 7919; time.Now().Before(end); {
								for range some {
									call(i)
									i += 104729
								}
								done.Add(some)
							}
						})
					}
					wg.Wait()
					return float64(done.Load()), (serverTime(b, client) - before) / float64(done.Load())
				}
				decide := func(i int) {
					if d, err := gate.Decide(ctx, charges[i%keys]); err != nil || d.Cause != nil {
						b.Error(err, d.Cause)
					}
				}
				ping := func(int) {
					if err := client.Ping(ctx).Err(); err != nil {
						b.Error(err)
					}
				}
				var rate, cost []float64
				crowd(decide)
				for b.Loop() {
					pings, ping := crowd(ping)
					calls, call := crowd(decide)
					rate, cost = append(rate, calls/pings), append(cost, call/ping)
				}
				slices.Sort(rate)
				slices.Sort(cost)
				b.ReportMetric(rate[len(rate)/2], "xPING")
				b.ReportMetric(cost[len(cost)/2], "xPING-server")
			})
		}
	}
}
