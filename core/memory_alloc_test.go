//go:build !race

// Not with the race detector: it makes sync.Pool drop items at random.

package core_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// Decisions in memory allocate nothing once their keys exist.
func TestMemoryAllocatesNothing(t *testing.T) {
	ctx := context.Background()
	k := newKey(t, "tenant", "a user with a name that is as long as a part of a key may be at all")
	for _, tt := range append(limitsOfTen, struct {
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
			decide(t, g, c) // so that Peek finds the key
		}
		calls := map[string]func(){
			"Decide":        func() { _, _ = g.Decide(ctx, c) },
			"Peek":          func() { _, _ = g.Peek(ctx, c) },
			"Allow":         func() { _, _ = l.Allow(ctx, k) },
			"several":       func() { _, _ = g.Decide(ctx, several...) },
			"limits of For": func() { _, _ = g.Decide(ctx, forKey) },
		}
		for name, call := range calls {
			for range 20 { // admitted at first, then denied
				call()
			}
			if n := testing.AllocsPerRun(200, call); n > 0 {
				t.Errorf("%s, %s: %v allocations", tt.name, name, n)
			}
		}
	}
	systemClock := memoryGate(t, core.Config{})
	c := core.Charge{Policy: limited(t, "p", core.TokenBucket{Rate: 1_000_000, Per: time.Second, Burst: 100}), Key: k, Cost: 1}
	if n := testing.AllocsPerRun(1000, func() { _, _ = systemClock.Decide(ctx, c) }); n > 0 {
		t.Errorf("with the system's clock: %v allocations", n)
	}
}
