package core_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// One state has one limit in a decision. Otherwise each charge would be checked as if it were alone.
func TestTwoLimitsOfOneKeyAreAnError(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		p, key := limited(t, "p", frozen(1)), newKey(t, "k")
		charge := func(a core.Algorithm) core.Charge { return core.Charge{Policy: p, Key: key, Cost: 6, Limit: a} }
		_, err := g.Decide(t.Context(), charge(frozen(10)), charge(frozen(11)))
		if !errors.Is(err, core.ErrCharge) {
			t.Errorf("two limits: %v", err)
		}
		if d := decide(t, g, charge(frozen(10)), charge(frozen(10))); d.Allowed {
			t.Errorf("12 of 10: %s", show(d))
		}
		log := func() core.Algorithm { return core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Hour}}} }
		if d := decide(t, g, charge(log()), charge(log())); d.Allowed {
			t.Errorf("12 of 10 in a log: %s", show(d))
		}
		// Limits of different algorithms have states of their own.
		if d := decide(t, g, charge(frozen(10)), charge(log())); !d.Allowed {
			t.Errorf("6 of 10 twice: %s", show(d))
		}
	})
}

// A caller that has many limits compiled anew meanwhile does not change what others are admitted.
func TestEqualLimitsAreOneLimit(t *testing.T) {
	g := memoryGate(t, core.Config{})
	p, other := limited(t, "p", frozen(1)), newKey(t, "other")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range int64(20_000) {
			_, _ = g.Peek(context.Background(), core.Charge{Policy: p, Key: other, Cost: core.NoCost, Limit: frozen(i + 100)})
		}
	}()
	key := newKey(t, "k")
	for run := true; run; {
		c := core.Charge{Policy: p, Key: key, Cost: 6, Limit: frozen(10)}
		if d, err := g.Decide(t.Context(), c, c); err != nil || d.Allowed {
			t.Fatalf("12 of 10: %s, %v", show(d), err)
		}
		select {
		case <-done:
			run = false
		default:
		}
	}
}

type embedded struct {
	core.TokenBucket
	_ []string
}

// A limit that cannot be compared is compiled each time.
func TestIncomparableLimit(t *testing.T) {
	g := memoryGate(t, core.Config{})
	c := core.Charge{Policy: limited(t, "p", frozen(1)), Key: newKey(t, "k"), Cost: 2, Limit: embedded{TokenBucket: frozen(2)}}
	admits(t, g, c)
}

func TestInvalidLogAfterAValidOne(t *testing.T) {
	g := memoryGate(t, core.Config{})
	c := core.Charge{Policy: limited(t, "p", frozen(1)), Key: newKey(t, "k"), Cost: 1}
	window := core.Window{Limit: 1, Width: time.Hour}
	c.Limit = core.SlidingLog{Windows: []core.Window{window}}
	decide(t, g, c)
	c.Limit = core.SlidingLog{Windows: []core.Window{window, {}}}
	if d, err := g.Decide(t.Context(), c); err == nil {
		t.Errorf("a window without a width: %s", show(d))
	}
}

// A cost of 0 fits any number of times.
func TestSpendUpToWithoutCost(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		free := core.Charge{Policy: limited(t, "free", core.PerHour(10)), Key: newKey(t, "k"), Cost: core.NoCost}
		one := core.Charge{Policy: limited(t, "one", frozen(1000)), Key: newKey(t, "k"), Cost: 1}
		if n, d, err := g.SpendUpTo(t.Context(), 100, free, one); n != 100 || err != nil {
			t.Errorf("granted %d: %s, %v", n, show(d), err)
		}
	})
}

// Reset forgets the states of the charges' own limits.
func TestResetHeedsTheChargesLimit(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		p := limited(t, "p", core.Calendar{Limit: 1, Every: core.PeriodMonth, In: time.UTC})
		anchor := time.Date(2025, 1, 17, 9, 0, 0, 0, time.UTC)
		charges := []core.Charge{
			{Policy: p, Key: newKey(t, "a"), Cost: 1, Limit: core.Calendar{Limit: 1, Every: core.PeriodMonth, In: time.UTC, Anchor: anchor}},
			{Policy: p, Key: newKey(t, "b"), Cost: 1},
		}
		decide(t, g, charges...)
		noError(t, g.Reset(t.Context(), charges...))
		admits(t, g, charges...)
		if err := g.Reset(t.Context()); !errors.Is(err, core.ErrCharge) {
			t.Errorf("Reset of nothing: %v", err)
		}
	})
}

// An observer may call the Gate, and panic, whatever it is told.
func TestObserverCallsTheGate(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	var g *core.Gate
	c := core.Charge{Policy: limited(t, "p", frozen(10)), Key: newKey(t, "k"), Cost: 1}
	scripts := 0
	g = redisGate(t, client, core.Config{Observe: func(ctx context.Context, e core.Event) {
		if !isOp(e, core.OpScriptMissing) {
			return
		}
		scripts++
		if d, err := g.Peek(ctx, c); err != nil || d.Source != core.SourceRedis {
			t.Errorf("Peek: %s, %v", show(d), err)
		}
	}})
	for range 2 {
		if d := decide(t, g, c); !d.Allowed || d.Source != core.SourceRedis {
			t.Errorf("from %v: %s", d.Source, show(d))
		}
	}
	if scripts != 1 {
		t.Errorf("%d scripts were missing", scripts)
	}
}

// The cache of denials keeps no part of a key that has no bound.
func TestLongKeysAreKnown(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
		c := core.Charge{Policy: limited(t, "p", frozen(1)), Key: newKey(t, strings.Repeat("x", 1<<16)), Cost: 2}
		for i := range 2 {
			if d := decide(t, g, c); d.Allowed || (d.Source == core.SourceCache) != (i == 1) {
				t.Errorf("%d from %v", i, d.Source)
			}
		}
	})
}
