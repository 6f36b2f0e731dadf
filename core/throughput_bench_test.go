package core_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// BenchmarkThroughput times many callers at once against as many PINGs: how many more decisions there are in the same time, and
// what they cost the server.
func BenchmarkThroughput(b *testing.B) {
	ctx := context.Background()
	for _, callers := range []int{64, 256} {
		for name, keys := range map[string]int{"hot": 1, "spread": 100_000} {
			b.Run(strconv.Itoa(callers)+"/"+name, func(b *testing.B) {
				server := redistest.Start(b)
				client := server.Client(b)
				gate, err := core.NewRedis(client, core.Config{Timeout: 10 * time.Second})
				if err != nil {
					b.Fatal(err)
				}
				p, err := core.NewPolicy(core.PolicyConfig{Name: "api", Algorithm: core.PerSecond(1_000_000)})
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
				crowd := func(call func(i int)) float64 {
					var wg sync.WaitGroup
					done := make([]int, callers)
					end := time.Now().Add(400 * time.Millisecond)
					for c := range callers {
						wg.Go(func() {
							i := c * 7919
							for time.Now().Before(end) {
								call(i)
								i += 104729
								done[c]++
							}
						})
					}
					wg.Wait()
					n := 0
					for _, d := range done {
						n += d
					}
					return float64(n)
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
				for b.Loop() {
					crowd(decide)
					own, other := 0.0, 0.0
					for range 5 {
						other += crowd(ping)
						own += crowd(decide)
					}
					b.ReportMetric(own/other, "xPING")
				}
			})
		}
	}
}
