package core_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/core"
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

func TestSnapshotAllocatesNothingWithoutOne(t *testing.T) {
	var n atomic.Int64
	if allocs := testing.AllocsPerRun(100, func() { core.Snapshot(t.Context(), &n, n.Load) }); allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}
