package eventtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// Overhead reports by how many nanoseconds an observer prolongs a decision in memory, and how long a
// decision without one takes. Both are medians of short blocks that alternate, so that other load on
// the machine affects both.
func Overhead(b *testing.B, observe func(context.Context, core.Event)) {
	b.Helper()
	gates := []*core.Gate{Gate(b, core.Config{}), Gate(b, core.Config{Observe: observe})}
	charge, ctx := Charge(b), b.Context()
	const calls = 200
	var times [2][]float64
	b.ReportAllocs()
	for b.Loop() {
		for i, g := range gates {
			start := time.Now()
			for range calls {
				_, _ = g.Decide(ctx, charge)
			}
			times[i] = append(times[i], float64(time.Since(start))/calls)
		}
	}
	for _, t := range times {
		slices.Sort(t)
	}
	off, on := times[0][len(times[0])/2], times[1][len(times[1])/2]
	b.ReportMetric(0, "ns/op") // of a block
	b.ReportMetric(off, "ns-off")
	b.ReportMetric(on-off, "ns-more")
}
