package core_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// Every wait of a Result is the truth to the microsecond: what it announces holds after exactly that long, and does
// not yet hold one microsecond earlier.
func TestWaitsAreTrue(t *testing.T) {
	limits := []core.TokenBucket{
		core.PerSecond(1), core.PerSecond(10), core.PerMinute(100), core.PerHour(7),
		{Rate: 7, Per: time.Second, Burst: 3},
		{Rate: 999_983, Per: 24 * time.Hour, Burst: 17},
		{Rate: 300_000, Per: time.Second, Burst: 5},
		{Rate: 1_000_000, Per: time.Second, Burst: 1000},
		{Rate: 3, Per: 1001, Burst: 100_000},
		{Rate: 1, Per: 30 * 24 * time.Hour, Burst: 2},
		{Rate: 3, Per: 36524 * 24 * time.Hour, Burst: 3},
		{Rate: 1<<42 - 1, Per: time.Hour, Burst: 1 << 42},
	}
	eachGate(t, func(t *testing.T, g *core.Gate, c *manualClock) {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		for i, limit := range limits {
			charge := core.Charge{Policy: limited(t, fmt.Sprintf("p%d", i), limit), Key: newKey(t, "k")}
			for range 20 {
				charge.Cost = 1 + rng.Int64N(limit.Burst)
				decide(t, g, charge)
				charge.Cost = limit.Burst - rng.Int64N(min(limit.Burst, 3))
				if err := checkWaits(t, g, c, charge); err != nil {
					t.Fatalf("seed %d, %+v, cost %d: %v", seed, limit, charge.Cost, err)
				}
				// Not by centuries: what lies behind 2050 is beyond the exact numbers.
				c.micros.Add(rng.Int64N(min(limit.Per, 24*time.Hour).Microseconds() + 1))
			}
		}
	})
}

// checkWaits leaves the time where it was.
func checkWaits(t *testing.T, g *core.Gate, c *manualClock, charge core.Charge) error {
	start := c.now()
	defer c.micros.Store(start)
	d := peek(t, g, charge)
	found := d.At(0)
	if wait, finite := d.RetryAfter(); wait != found.RetryAfter || !finite {
		return fmt.Errorf("the decision waits %v %v, its only result %v", wait, finite, found.RetryAfter)
	}
	for name, w := range map[string]struct {
		wait  time.Duration
		holds func(core.Result) bool
	}{
		"RetryAfter": {found.RetryAfter, func(r core.Result) bool { return r.Allowed }},
		"NextAfter":  {found.NextAfter, func(r core.Result) bool { return r.Remaining > found.Remaining }},
		"ResetAfter": {found.ResetAfter, func(r core.Result) bool { return r.Remaining == r.Limit }},
	} {
		if w.wait == 0 {
			if name == "RetryAfter" && !found.Allowed || name != "RetryAfter" && found.Used > 0 {
				return fmt.Errorf("%s is 0 in %s", name, show(d))
			}
			continue
		}
		if w.wait%time.Microsecond != 0 {
			return fmt.Errorf("%s is %v", name, w.wait)
		}
		c.micros.Store(start + w.wait.Microseconds() - 1)
		if early := peek(t, g, charge); w.holds(early.At(0)) {
			return fmt.Errorf("%s is %v, but it holds before: %s", name, w.wait, show(early))
		}
		c.micros.Store(start + w.wait.Microseconds())
		if then := peek(t, g, charge); !w.holds(then.At(0)) {
			return fmt.Errorf("%s is %v, but it does not hold then: %s", name, w.wait, show(then))
		}
	}
	return nil
}

// Not only a peek: the charge itself passes then, and not before.
func TestChargePassesAfterRetryAfter(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate, c *manualClock) {
		charge := core.Charge{Policy: limited(t, "p", core.TokenBucket{Rate: 7, Per: time.Second, Burst: 3}), Key: newKey(t, "k"), Cost: 3}
		decide(t, g, charge)
		for i := range 50 {
			charge.Cost = int64(1 + i%3)
			d := decide(t, g, charge)
			if d.Allowed {
				continue
			}
			wait, _ := d.RetryAfter()
			c.micros.Add(wait.Microseconds() - 1)
			if d := decide(t, g, charge); d.Allowed {
				t.Fatalf("charge %d passes a microsecond before its wait of %v", i, wait)
			}
			c.micros.Add(1)
			if d := decide(t, g, charge); !d.Allowed {
				t.Fatalf("charge %d does not pass after its wait of %v: %s", i, wait, show(d))
			}
		}
	})
}

func TestWaitingDoesNotHelp(t *testing.T) {
	tests := []struct {
		name   string
		limit  core.TokenBucket
		spent  int64
		cost   int64
		denied bool
		reset  time.Duration // of the result
	}{
		{"above the burst", core.PerSecond(10), 0, 11, true, 0},
		{"far above the burst", core.PerSecond(10), 0, math.MaxInt64, true, 0},
		{"above the burst of a used key", core.PerSecond(10), 10, 11, true, time.Second},
		{"no refill", frozen(3), 3, 1, true, core.Never},
		{"no refill, above the burst", frozen(3), 0, 4, true, 0},
		{"no refill, still some there", frozen(3), 2, 1, false, core.Never},
	}
	eachGate(t, func(t *testing.T, g *core.Gate, c *manualClock) {
		for i, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				charge := core.Charge{Policy: limited(t, fmt.Sprintf("p%d", i), tt.limit), Key: newKey(t, "k"), Cost: tt.spent}
				decide(t, g, charge)
				charge.Cost = tt.cost
				d := decide(t, g, charge)
				r := d.At(0)
				wait, finite := d.RetryAfter()
				if d.Allowed == tt.denied || r.ResetAfter != tt.reset {
					t.Errorf("%s, want reset %v", show(d), tt.reset)
				}
				if tt.denied && (r.RetryAfter != core.Never || finite || wait != 0) {
					t.Errorf("retry after %v, of the decision %v %v", r.RetryAfter, wait, finite)
				}
			})
		}
		_ = c
	})
}

// One charge that waiting does not help makes waiting useless for all.
func TestDecisionWaitsForTheSlowest(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate, c *manualClock) {
		key := newKey(t, "k")
		fast := core.Charge{Policy: limited(t, "fast", core.PerSecond(1)), Key: key, Cost: 1}
		slow := core.Charge{Policy: limited(t, "slow", core.PerMinute(1)), Key: key, Cost: 1}
		never := core.Charge{Policy: limited(t, "never", core.PerMinute(1)), Key: key, Cost: 2}
		shadow := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "shadow", Algorithm: frozen(1), Shadow: true}), Key: key, Cost: 2}
		decide(t, g, fast, slow)
		d := decide(t, g, fast, slow, shadow)
		if wait, finite := d.RetryAfter(); d.Allowed || wait != time.Minute || !finite {
			t.Errorf("%s", show(d))
		}
		d = decide(t, g, fast, never, slow)
		if _, finite := d.RetryAfter(); d.Allowed || finite {
			t.Errorf("%s", show(d))
		}
	})
}
