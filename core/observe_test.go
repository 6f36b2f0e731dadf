package core_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
)

// A Gate with an observer decides like one without.
func TestObserveChangesNothing(t *testing.T) {
	ctx := t.Context()
	var policies []*core.Policy
	for _, cfg := range mixedPolicies {
		policies = append(policies, newPolicy(t, cfg))
	}
	keys := []core.Key{newKey(t, "a"), newKey(t, "a", "x"), newKey(t, "b", "x")}
	rapid.Check(t, func(r *rapid.T) {
		clock, events := newClock(), 0
		unobserved := memoryGate(t, core.Config{Clock: clock.Now})
		observed := memoryGate(t, core.Config{
			Clock: clock.Now, Observe: func(context.Context, core.Event) { events++ },
		})
		few := rapid.SliceOfN(rapid.SampledFrom(policies), 1, 3).Draw(r, "policies")
		steps := rapid.IntRange(1, 60).Draw(r, "steps")
		for range steps {
			wait := rapid.Int64Range(-1_000_000, 30_000_000).Draw(r, "wait")
			clock.Advance(time.Duration(wait) * time.Microsecond)
			c := core.Charge{
				Policy: rapid.SampledFrom(few).Draw(r, "policy"), Key: rapid.SampledFrom(keys).Draw(r, "key"),
				Cost: rapid.OneOf(rapid.Int64Range(0, 12), rapid.Int64()).Draw(r, "cost"),
			}
			c = under(rapid.IntRange(0, 3).Draw(r, "plan"), c)[0]
			op := rapid.SampledFrom([]string{"decide", "decide", "decide", "peek", "reset"}).Draw(r, "op")
			var seen [2]string
			for i, g := range []*core.Gate{unobserved, observed} {
				var d core.Decision
				var err error
				switch op {
				case "decide":
					d, err = g.Decide(ctx, c)
				case "peek":
					d, err = g.Peek(ctx, c)
				default:
					err = g.Reset(ctx, c)
				}
				seen[i] = fmt.Sprint(d.Source, show(d), err, g.Values())
			}
			if seen[0] != seen[1] {
				r.Fatalf("%s of %d: %s\nand observed: %s", op, c.Cost, seen[0], seen[1])
			}
		}
		if events != steps {
			r.Fatalf("%d of %d decisions were observed", events, steps)
		}
	})
}

type brokenClock struct {
	*core.ManualClock
	broken bool
}

func (c *brokenClock) Now() time.Time {
	if c.broken {
		panic("broken clock")
	}
	return c.ManualClock.Now()
}

func TestMemorySurvivesPanicOfItsClock(t *testing.T) {
	clock := &brokenClock{ManualClock: newClock()}
	g := memoryGate(t, core.Config{Clock: clock.Now})
	p, q, k := limited(
		t,
		"p",
		core.PerSecond(1),
	), limited(
		t,
		"q",
		core.PerSecond(1),
	), newKey(
		t,
		"k",
	)
	for _, charges := range [][]core.Charge{{{Policy: p, Key: k, Cost: core.NoCost}}, {{Policy: p, Key: k, Cost: core.NoCost}, {Policy: q, Key: k, Cost: core.NoCost}}} {
		clock.broken = true
		func() {
			defer func() {
				if recover() == nil {
					t.Error("Decide did not panic")
				}
			}()
			_, _ = g.Decide(t.Context(), charges...)
		}()
		clock.broken = false
		done := make(chan bool, 1)
		go func() {
			d, err := g.Decide(context.Background(), charges...)
			done <- err == nil && d.Allowed
		}()
		select {
		case ok := <-done:
			if !ok {
				t.Error("the decision after the panic was not allowed")
			}
		case <-time.After(longTimeout):
			t.Fatal("the decision after the panic blocks")
		}
	}
}

// An event tells what its decision was on, also if a cached denial answers.
func TestEventTellsTheCharges(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		var seen [][]core.Charge
		var sources []core.Source
		g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, Observe: func(_ context.Context, e core.Event) {
			if e, ok := e.(*core.DecisionEvent); ok {
				seen, sources = append(seen, slices.Clone(e.Charges)), append(sources, e.Decision.Source)
			}
		}})
		g.InjectClock(micros(newClock()))
		charge := core.Charge{Policy: limited(t, "p", frozen(1)), Key: newKey(t, "k"), Cost: 1}
		for range 3 {
			decide(t, g, charge)
		}
		if len(seen) != 3 || sources[2] != core.SourceCache {
			t.Fatalf("%d events, %v", len(seen), sources)
		}
		for _, charges := range seen {
			if len(charges) != 1 || charges[0] != charge {
				t.Errorf("an event tells of %v", charges)
			}
		}
	})
}
