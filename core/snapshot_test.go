package core_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// A snapshot loads each key once, until it ends.
func TestSnapshotLoadsOnce(t *testing.T) {
	type key string
	var loads int
	load := func() int { loads++; return loads }
	if core.Snapshot(t.Context(), key("a"), load) != 1 || core.Snapshot(t.Context(), key("a"), load) != 2 {
		t.Errorf("without a snapshot: %d loads", loads)
	}
	ctx, end := core.WithSnapshot(t.Context())
	first, again := core.Snapshot(ctx, key("a"), load), core.Snapshot(ctx, key("a"), load)
	if first != 3 || again != 3 {
		t.Errorf("in a snapshot: %d, then %d", first, again)
	}
	if other := core.Snapshot(ctx, "a", load); other != 4 {
		t.Errorf("a key of another type: %d", other)
	}
	if other := core.Snapshot(ctx, key("a"), func() string { return "text" }); other != "text" {
		t.Errorf("a value of another type: %q", other)
	}
	inner, endInner := core.WithSnapshot(ctx)
	endInner()
	if got := core.Snapshot(inner, key("a"), load); got != 3 {
		t.Errorf("in a snapshot of a snapshot: %d", got)
	}
	for i := range 10 { // beyond the memory that a snapshot begins with
		core.Snapshot(ctx, i, load)
	}
	if got := core.Snapshot(ctx, 0, func() int { return -1 }); got != 5 {
		t.Errorf("of many: %d", got)
	}
	if got := core.Snapshot(ctx, "nil", func() error { return nil }); got != nil {
		t.Errorf("a nil interface is %v", got)
	}
	if got := core.Snapshot(ctx, "nil", func() error { return errors.New("again") }); got != nil {
		t.Errorf("a nil interface is then %v", got)
	}
	end()
	if got := core.Snapshot(ctx, key("a"), func() int { return -1 }); got != -1 {
		t.Errorf("after its end: %d", got)
	}
	if next, endNext := core.WithSnapshot(ctx); next == ctx {
		t.Error("an ended snapshot counts as one")
	} else {
		endNext()
	}
}

// Several goroutines see the value of the first load to return.
func TestSnapshotOfSeveralGoroutines(t *testing.T) {
	ctx, end := core.WithSnapshot(t.Context())
	defer end()
	var n atomic.Int64
	var wg sync.WaitGroup
	seen := make([]int64, 8)
	for i := range seen {
		wg.Go(func() {
			seen[i] = core.Snapshot(ctx, &n, func() int64 { return n.Add(1) })
		})
	}
	wg.Wait()
	for _, v := range seen {
		if v != seen[0] {
			t.Errorf("they see %v", seen)
		}
	}
}

// All charges of a decision are decided by one snapshot, whatever changes meanwhile.
func TestForSeesOneSnapshotOfADecision(t *testing.T) {
	var current atomic.Int64
	limitOf := func(ctx context.Context, _ core.Key) (core.Algorithm, error) {
		n := core.Snapshot(ctx, &current, func() int64 { return current.Add(1) })
		return core.TokenBucket{Rate: n, Per: time.Hour, Burst: n}, nil
	}
	eachGate(t, func(t *testing.T, g *core.Gate, _ *manualClock) {
		var charges []core.Charge
		for _, name := range []string{"a", "b", "c"} {
			p := newPolicy(t, core.PolicyConfig{Name: name, Algorithm: core.PerHour(1), For: limitOf})
			if !p.PerKey() {
				t.Error("a policy with a For does not say so")
			}
			charges = append(charges, core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 1})
		}
		for range 5 {
			d := decide(t, g, charges...)
			for i := range charges {
				if d.At(i).Limit != d.At(0).Limit {
					t.Errorf("limits of one decision: %s", show(d))
				}
			}
		}
	})
	if limited(t, "p", core.PerHour(1)).PerKey() {
		t.Error("a policy without a For says that it has one")
	}
}

// An event tells what its decision was on, also if a cached denial answers.
func TestEventTellsTheCharges(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		var seen [][]core.Charge
		var sources []core.Source
		g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, Observe: func(_ context.Context, e core.Event) {
			if e, ok := e.(*core.DecisionEvent); ok {
				seen, sources = append(seen, slices.Clone(e.Charges)), append(sources, e.Decision.Source)
			}
		}})
		g.InjectClock(newClock().now)
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

func TestSnapshotAllocatesNothingWithoutOne(t *testing.T) {
	var n atomic.Int64
	if allocs := testing.AllocsPerRun(100, func() { core.Snapshot(t.Context(), &n, n.Load) }); allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}
