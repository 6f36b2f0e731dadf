//go:build !race

// The race detector makes sync.Pool forget at random.

package core_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// Decisions in memory leave nothing for the collector once their keys are known.
func TestMemoryMakesNoGarbage(t *testing.T) {
	ctx := context.Background()
	k := newKey(t, "tenant", "a user with a name that is as long as a part of a key may be at all")
	for _, tt := range append(tens, struct {
		name      string
		algorithm core.Algorithm
	}{"per second", core.PerSecond(1_000_000)}) {
		g := memoryGate(t, core.Config{Clock: newClock()})
		c := core.Charge{Policy: limited(t, "p", tt.algorithm), Key: k, Cost: 1}
		var several []core.Charge
		for i := range 4 {
			several = append(several, core.Charge{Policy: limited(t, fmt.Sprint(i), tt.algorithm), Key: k, Cost: 1})
		}
		l, err := g.Limiter(c.Policy)
		if err != nil {
			t.Fatal(err)
		}
		forKey := core.Charge{Policy: newPolicy(t, core.PolicyConfig{
			Name: "for", Algorithm: core.DenyAll{}, For: func(context.Context, core.Key) (core.Algorithm, error) { return nil, nil },
		}), Key: k, Cost: 1}
		for range 3 {
			decide(t, g, c) // so that Peek finds it
		}
		calls := map[string]func(){
			"Decide":        func() { _, _ = g.Decide(ctx, c) },
			"Peek":          func() { _, _ = g.Peek(ctx, c) },
			"Allow":         func() { _, _ = l.Allow(ctx, k) },
			"several":       func() { _, _ = g.Decide(ctx, several...) },
			"limits of For": func() { _, _ = g.Decide(ctx, forKey) },
		}
		for name, call := range calls {
			for range 20 { // admitted at first, and then denied
				call()
			}
			if n := testing.AllocsPerRun(200, call); n > 0 {
				t.Errorf("%s, %s: %v allocations", tt.name, name, n)
			}
		}
	}
	real := memoryGate(t, core.Config{})
	c := core.Charge{Policy: limited(t, "p", core.TokenBucket{Rate: 1_000_000, Per: time.Second, Burst: 100}), Key: k, Cost: 1}
	if n := testing.AllocsPerRun(1000, func() { _, _ = real.Decide(ctx, c) }); n > 0 {
		t.Errorf("by the system's clock: %v allocations", n)
	}
}
