//go:build !race

// Not with the race detector: it makes sync.Pool drop items at random.

package core_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
)

// Once its key exists, a decision in memory allocates nothing, or once if it has several charges.
func TestMemoryAllocatesNothing(t *testing.T) {
	ctx := context.Background()
	k := newKey(t, "tenant", "a user with a name that is as long as a part of a key may be at all")
	for _, tt := range append(limitsOfTen, namedLimit{"per second", core.PerSecond(1_000_000)}) {
		g := memoryGate(t, core.Config{Clock: newClock().Now})
		c := core.Charge{Policy: limited(t, "p", tt.algorithm), Key: k, Cost: 1}
		other := core.Charge{Policy: limited(t, "other", tt.algorithm), Key: k, Cost: 1}
		l := gatetest.Must(core.NewLimiter(g, c.Policy))(t)
		own := core.Charge{Policy: limited(t, "own", core.DenyAll{}), Key: k, Cost: 1, Limit: core.PerHour(10)}
		for range 3 {
			decide(t, g, c, other) // so that Peek finds the keys
		}
		calls := map[string]func(){
			"Decide":        func() { _, _ = g.Decide(ctx, c) },
			"Peek":          func() { _, _ = g.Peek(ctx, c) },
			"Allow":         func() { _, _ = l.Allow(ctx, k) },
			"its own limit": func() { _, _ = g.Decide(ctx, own) },
		}
		for name, call := range calls {
			for range 20 { // admitted at first, then denied
				call()
			}
			if n := gatetest.Allocs(call); n > 0 {
				t.Errorf("%s, %s: %v allocations", tt.name, name, n)
			}
		}
		if n := gatetest.Allocs(func() { _, _ = g.Decide(ctx, c, other) }); n != 1 {
			t.Errorf("%s, several charges: %v allocations", tt.name, n)
		}
	}
	systemClock := memoryGate(t, core.Config{})
	c := core.Charge{Policy: limited(t, "p", core.TokenBucket{Rate: 1_000_000, Per: time.Second, Burst: 100}), Key: k, Cost: 1}
	if n := gatetest.Allocs(func() { _, _ = systemClock.Decide(ctx, c) }); n > 0 {
		t.Errorf("with the system's clock: %v allocations", n)
	}
}

// An observer of decisions that keeps nothing costs no allocation.
func TestObserverAllocatesNothing(t *testing.T) {
	ctx := context.Background()
	allowed := 0
	g := memoryGate(t, core.Config{Clock: newClock().Now, Observe: func(_ context.Context, e core.Event) {
		d := e.(*core.DecisionEvent)
		for _, r := range d.Decision.Results() {
			if r.Allowed && len(d.Charges) > 0 {
				allowed++
			}
		}
	}})
	unobserved := memoryGate(t, core.Config{Clock: newClock().Now})
	k := newKey(t, "k")
	c := core.Charge{Policy: limited(t, "p", frozen(1_000_000)), Key: k, Cost: 1}
	below := core.Charge{Policy: watched(t, frozen(1_000_000)), Key: newKey(t, "below")}
	calls := map[string]func(*core.Gate){
		"Decide":  func(g *core.Gate) { _, _ = g.Decide(ctx, c) },
		"watched": func(g *core.Gate) { _, _ = g.Decide(ctx, below) }, // below its thresholds
		"Peek":    func(g *core.Gate) { _, _ = g.Peek(ctx, c) },
		"two":     func(g *core.Gate) { _, _ = g.Decide(ctx, c, core.Charge{Policy: denyAll, Key: k}) },
		"invalid": func(g *core.Gate) { _, _ = g.Peek(ctx, core.Charge{Key: k}) },
	}
	for name, call := range calls {
		call(g)
		call(unobserved)
		n := gatetest.Allocs(func() { call(g) })
		if without := gatetest.Allocs(func() { call(unobserved) }); n > without {
			t.Errorf("%s: %v allocations, and %v without an observer", name, n, without)
		}
	}
	if allowed == 0 {
		t.Error("the observer saw no results")
	}
}

var denyAll = core.Must(core.NewPolicy(core.PolicyConfig{Name: "all", Algorithm: core.DenyAll{}}))
