package core_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate/core"
)

// BenchmarkThresholds times observed decisions in memory: of a policy without thresholds, of one
// whose key is below them, and of one whose key has reached them. xNone is the ratio to the first.
// Their blocks alternate.
func BenchmarkThresholds(b *testing.B) {
	const limit = 1_000_000_000_000_000
	decider := func(b *testing.B, used int64, percents ...int) func() {
		g := memoryGate(b, core.Config{Observe: func(context.Context, core.Event) {}})
		p := newPolicy(b, core.PolicyConfig{Name: "p", Algorithm: frozen(limit), Thresholds: percents})
		c := core.Charge{Policy: p, Key: newKey(b, "k"), Cost: used}
		decide(b, g, c)
		c.Cost = 1
		return func() { _, _ = g.Decide(context.Background(), c) }
	}
	for name, used := range map[string]int64{"below": 1, "reached": limit * 9 / 10} {
		b.Run(name, func(b *testing.B) {
			call := decider(b, used, 80, 90, 100)
			ratio := beside(call, decider(b, used))
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
			b.ReportMetric(ratio, "xNone")
		})
	}
}
