package core_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// waitLimits are limits of every algorithm and how many units each has room for at once.
var waitLimits = []struct {
	algorithm core.Algorithm
	limit     int64
	span      time.Duration // the most time between two charges
	from      time.Time     // start of the history; the epoch if zero
}{
	{algorithm: core.PerSecond(10), limit: 10, span: time.Second},
	{algorithm: core.PerMinute(100), limit: 100, span: time.Minute},
	{algorithm: core.PerHour(7), limit: 7, span: time.Hour},
	{algorithm: core.TokenBucket{Rate: 7, Per: time.Second, Burst: 3}, limit: 3, span: time.Second},
	{algorithm: core.TokenBucket{Rate: 999_983, Per: 24 * time.Hour, Burst: 17}, limit: 17, span: time.Second},
	{algorithm: core.TokenBucket{Rate: 300_000, Per: time.Second, Burst: 5}, limit: 5, span: 20 * time.Microsecond},
	{algorithm: core.TokenBucket{Rate: 1_000_000, Per: time.Second, Burst: 1000}, limit: 1000, span: time.Millisecond},
	{algorithm: core.TokenBucket{Rate: 3, Per: 1001, Burst: 100_000}, limit: 100_000, span: 50 * time.Microsecond},
	{algorithm: core.TokenBucket{Rate: 1, Per: 30 * 24 * time.Hour, Burst: 2}, limit: 2, span: 24 * time.Hour},
	{algorithm: core.TokenBucket{Rate: 3, Per: 36524 * 24 * time.Hour, Burst: 3}, limit: 3, span: 24 * time.Hour},
	{algorithm: core.TokenBucket{Rate: 1<<42 - 1, Per: time.Hour, Burst: 1 << 42}, limit: 1 << 42, span: time.Hour},
	{algorithm: core.LeakyBucket{Rate: 7, Per: time.Second, Capacity: 9}, limit: 9, span: time.Second},
	{algorithm: core.FixedWindow{Limit: 10, Window: time.Minute}, limit: 10, span: 45 * time.Second},
	{algorithm: core.FixedWindow{Limit: 9, Window: 7 * time.Microsecond}, limit: 9, span: 9 * time.Microsecond},
	{algorithm: core.FixedWindow{Limit: 10, Window: time.Minute, FromFirst: true}, limit: 10, span: 45 * time.Second},
	{algorithm: core.SlidingWindow{Limit: 10, Window: time.Minute}, limit: 10, span: 45 * time.Second},
	{algorithm: core.SlidingWindow{Limit: 1, Window: time.Microsecond}, limit: 1, span: 2 * time.Microsecond},
	{algorithm: core.SlidingWindow{Limit: 1_000_000_007, Window: 7 * 24 * time.Hour}, limit: 1_000_000_007, span: 5 * 24 * time.Hour},
	{algorithm: core.SlidingWindow{Limit: 1_000_000_000, Window: 7 * 24 * time.Hour}, limit: 1_000_000_000, span: 5 * 24 * time.Hour},
	{algorithm: core.SlidingWindow{Limit: 10, Window: time.Minute, Buckets: 1}, limit: 10, span: 90 * time.Second},
	{algorithm: core.SlidingWindow{Limit: 10, Window: time.Minute, Buckets: 10}, limit: 10, span: 45 * time.Second},
	{algorithm: core.SlidingWindow{Limit: 1000, Window: time.Second, Buckets: 1000}, limit: 1000, span: 400 * time.Millisecond},
	{algorithm: core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Minute}}}, limit: 10, span: 30 * time.Second},
	{
		algorithm: core.SlidingLog{Windows: []core.Window{
			{Limit: 4, Width: time.Second}, {Limit: 10, Width: time.Minute}, {Limit: 30, Width: time.Hour},
		}},
		limit: 4, span: 20 * time.Second,
	},
	{algorithm: core.Calendar{Limit: 10, Every: core.PeriodMinute, In: time.UTC}, limit: 10, span: 45 * time.Second},
	{algorithm: core.Block{Strikes: 10, Within: time.Minute, For: time.Minute, Most: time.Hour}, limit: 10, span: 45 * time.Second},
	{
		algorithm: core.Calendar{Limit: 10, Every: core.PeriodHour, In: lordHowe}, limit: 10, span: 20 * time.Minute,
		// An hour before the clocks go back by half an hour.
		from: time.Date(2026, 4, 4, 13, 50, 0, 0, time.UTC),
	},
	{
		algorithm: core.Calendar{Limit: 10, Every: core.PeriodDay, In: lordHowe}, limit: 10, span: 12 * time.Hour,
		from: time.Date(2026, 10, 3, 2, 0, 0, 0, time.UTC), // a day before they go forward
	},
	{algorithm: core.Calendar{Limit: 10, Every: core.PeriodWeek, In: lordHowe}, limit: 10, span: 3 * 24 * time.Hour},
	{
		algorithm: core.Calendar{Limit: 10, Every: core.PeriodMonth, In: time.UTC, Anchor: time.Date(2024, 1, 31, 7, 0, 0, 0, time.UTC)},
		limit:     10, span: 15 * 24 * time.Hour,
	},
	{algorithm: core.Calendar{Limit: 10, Every: core.PeriodYear, In: lordHowe}, limit: 10, span: 60 * 24 * time.Hour},
}

// eachWaitLimit runs a random history on every limit and checks the waits after each step.
func eachWaitLimit(t *testing.T, n int, spend func(rng *rand.Rand, g *core.Gate, charge core.Charge) error) {
	t.Helper()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		for i, w := range waitLimits {
			if c.Set(time.UnixMicro(epoch)); !w.from.IsZero() {
				c.Set(w.from)
			}
			charge := core.Charge{Policy: limited(t, fmt.Sprintf("p%d", i), w.algorithm), Key: newKey(t, "k"), Cost: core.NoCost}
			for range rounds(t, n) {
				charge.Cost = 1 + rng.Int64N(w.limit)
				if rng.IntN(3) > 0 {
					charge.Cost = 1 + rng.Int64N(min(3, w.limit))
				}
				if err := spend(rng, g, charge); err != nil {
					t.Fatal(err)
				}
				charge.Cost = 1 + rng.Int64N(w.limit)
				if rng.IntN(2) > 0 {
					charge.Cost = w.limit - rng.Int64N(min(w.limit, 3))
				}
				if err := checkWaits(t, g, c, charge); err != nil {
					t.Errorf("seed %d, %T%+v, cost %d: %v", seed, w.algorithm, w.algorithm, charge.Cost, err)
					break
				}
				c.Advance(time.Duration(rng.Int64N(w.span.Microseconds()+1)) * time.Microsecond)
			}
			charge.Cost = w.limit + 1 + rng.Int64N(math.MaxInt64-w.limit)
			d := peek(t, g, charge)
			_, blocks := w.algorithm.(core.Block) // which has no cost that never fits
			if !blocks && (d.RetryAfter() != core.Never || d.At(0).RetryAfter != core.Never) {
				t.Errorf("%T%+v, cost %d: %s", w.algorithm, w.algorithm, charge.Cost, show(d))
			}
		}
	})
}

// Every wait of a Result is exact to the microsecond: what it announces holds after exactly that
// long, and does not hold one microsecond earlier.
func TestWaitsAreExact(t *testing.T) {
	t.Parallel()
	eachWaitLimit(t, 16, func(_ *rand.Rand, g *core.Gate, charge core.Charge) error {
		_, err := g.Decide(t.Context(), charge)
		return err
	})
}

// Waits are exact too if Settle charges more than there was room for.
func TestWaitsOfDebtsAreExact(t *testing.T) {
	t.Parallel()
	eachWaitLimit(t, 8, func(rng *rand.Rand, g *core.Gate, charge core.Charge) error {
		r, d, err := g.Reserve(t.Context(), 0, charge)
		if err != nil || !d.Allowed {
			return err
		}
		return r.Settle(t.Context(), charge.Cost+rng.Int64N(charge.Cost+1))
	})
}

// checkWaits checks the waits of a charge and leaves the clock where it was.
func checkWaits(t *testing.T, g *core.Gate, c *core.ManualClock, charge core.Charge) error {
	start := c.Now().UnixMicro()
	defer c.Set(time.UnixMicro(start))
	d := peek(t, g, charge)
	found := d.At(0)
	if wait := d.RetryAfter(); wait != found.RetryAfter {
		return fmt.Errorf("RetryAfter is %v, and %v in the only result", wait, found.RetryAfter)
	}
	for name, w := range map[string]struct {
		wait  time.Duration
		holds func(core.Result) bool
	}{
		"RetryAfter": {found.RetryAfter, func(r core.Result) bool { return r.Allowed }},
		"NextAfter":  {found.NextAfter, func(r core.Result) bool { return r.Remaining > found.Remaining }},
		"ResetAfter": {found.ResetAfter, func(r core.Result) bool { return r.ResetAfter == 0 }},
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
		c.Set(time.UnixMicro(start + w.wait.Microseconds() - 1))
		if early := peek(t, g, charge); w.holds(early.At(0)) {
			return fmt.Errorf("%s is %v, but it holds 1 µs earlier: %s", name, w.wait, show(early))
		}
		c.Set(time.UnixMicro(start + w.wait.Microseconds()))
		if then := peek(t, g, charge); !w.holds(then.At(0)) {
			return fmt.Errorf("%s is %v, but it does not hold after it: %s", name, w.wait, show(then))
		}
	}
	return nil
}

// The charge itself, not only a peek, passes after RetryAfter and not before.
func TestChargePassesAfterRetryAfter(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for i, w := range waitLimits {
			if c.Set(time.UnixMicro(epoch)); !w.from.IsZero() {
				c.Set(w.from)
			}
			charge := core.Charge{Policy: limited(t, fmt.Sprintf("p%d", i), w.algorithm), Key: newKey(t, "k"), Cost: w.limit}
			decide(t, g, charge)
			for j := range rounds(t, 16) {
				if c.Now().Year() >= 2050 {
					break // later times are beyond the exact numbers
				}
				charge.Cost = max(1, w.limit*int64(1+j%3)/3)
				d := decide(t, g, charge)
				if d.Allowed {
					continue
				}
				wait := d.RetryAfter()
				c.Advance(wait.Truncate(time.Microsecond) - time.Microsecond)
				if d := decide(t, g, charge); d.Allowed {
					t.Fatalf("%T%+v: charge %d passes a microsecond before its wait of %v", w.algorithm, w.algorithm, j, wait)
				}
				c.Advance(time.Microsecond)
				if d := decide(t, g, charge); !d.Allowed {
					t.Fatalf("%T%+v: charge %d does not pass after its wait of %v: %s", w.algorithm, w.algorithm, j, wait, show(d))
				}
			}
		}
	})
}

// A reservation waits for at most the given time. With one microsecond less it is denied, and its
// RetryAfter is that microsecond.
func TestReserveWaitsAtMostTheGivenTime(t *testing.T) {
	t.Parallel()
	limits := []core.Algorithm{
		core.PerSecond(10),
		core.TokenBucket{Rate: 7, Per: time.Second, Burst: 9},
		core.TokenBucket{Rate: 300_000, Per: time.Second, Burst: 50},
		core.TokenBucket{Rate: 999_983, Per: 24 * time.Hour, Burst: 17},
		core.LeakyBucket{Rate: 7, Per: time.Second, Capacity: 9},
		core.LeakyBucket{Rate: 700_001, Per: time.Second, Capacity: 50},
	}
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		rng := rand.New(rand.NewPCG(1, 2))
		for i, limit := range limits {
			charge := core.Charge{Policy: limited(t, fmt.Sprintf("p%d", i), limit), Key: newKey(t, "k"), Cost: core.NoCost}
			for range rounds(t, 40) {
				charge.Cost = 1 + rng.Int64N(3)
				found := peek(t, g, charge)
				// A bucket has tokens for the charge after this wait. A queue lets the charge leave
				// when its backlog has leaked.
				wait := found.At(0).RetryAfter
				if _, queue := limit.(core.LeakyBucket); queue {
					c.Advance(wait)
					found = peek(t, g, charge)
					wait = found.At(0).ResetAfter
				}
				if wait > 0 {
					if r, d := reserve(t, g, wait-time.Microsecond, charge); r != nil || d.At(0).RetryAfter != time.Microsecond {
						t.Fatalf("%T%+v, %d within a microsecond less than %v: %s", limit, limit, charge.Cost, wait, show(d))
					}
				}
				if r, d := reserve(t, g, wait, charge); r == nil || d.At(0).Delay != wait {
					t.Fatalf("%T%+v, %d within %v: %s", limit, limit, charge.Cost, wait, show(d))
				}
				c.Advance(time.Duration(rng.Int64N(wait.Microseconds()+2)) * time.Microsecond)
			}
		}
	})
}

// The delay of a Reservation is the longest of its charges. Shadows cause no delay.
func TestDelayIsThatOfTheSlowestCharge(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		key := newKey(t, "k")
		charges := []core.Charge{
			{Policy: limited(t, "hour", core.PerHour(1)), Key: key, Cost: 1},
			{Policy: limited(t, "day", core.TokenBucket{Rate: 1, Per: 24 * time.Hour, Burst: 1}), Key: key, Cost: 1},
			{Policy: limited(t, "unlimited", core.Unlimited{}), Key: key, Cost: 1},
			{Policy: newPolicy(t, core.PolicyConfig{Name: "shadow", Algorithm: core.TokenBucket{Rate: 1, Per: 1000 * time.Hour, Burst: 1}, Shadow: true}), Key: key, Cost: 1},
		}
		if r, d := reserve(t, g, 0, charges...); r == nil || r.Delay() != 0 {
			t.Errorf("first reservation: %s", show(d))
		}
		r, d := reserve(t, g, 5000*time.Hour, charges...)
		if r == nil || d.At(0).Delay != time.Hour || d.At(1).Delay != 24*time.Hour {
			t.Fatal(show(d))
		}
		// Even the slowest machine gets here within an hour.
		if delay := r.Delay(); delay > 24*time.Hour || delay <= 23*time.Hour {
			t.Errorf("delay %v of %s", delay, show(d))
		}
	})
}

func TestRetryAfterNever(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		limit  core.TokenBucket
		spent  int64
		cost   int64
		denied bool
		reset  time.Duration // ResetAfter of the result
	}{
		{"above the burst", core.PerSecond(10), 0, 11, true, 0},
		{"far above the burst", core.PerSecond(10), 0, math.MaxInt64, true, 0},
		{"above the burst of a used key", core.PerSecond(10), 10, 11, true, time.Second},
		{"no refill", frozen(3), 3, 1, true, core.Never},
		{"no refill, above the burst", frozen(3), 0, 4, true, 0},
		{"no refill, some left", frozen(3), 2, 1, false, core.Never},
	}
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for i, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				charge := core.Charge{Policy: limited(t, fmt.Sprintf("p%d", i), tt.limit), Key: newKey(t, "k"), Cost: units(tt.spent)}
				decide(t, g, charge)
				charge.Cost = units(tt.cost)
				d := decide(t, g, charge)
				r := d.At(0)
				if d.Allowed == tt.denied || r.ResetAfter != tt.reset {
					t.Errorf("%s, want reset %v", show(d), tt.reset)
				}
				if tt.denied && (r.RetryAfter != core.Never || d.RetryAfter() != core.Never) {
					t.Errorf("RetryAfter is %v, and %v of the decision", r.RetryAfter, d.RetryAfter())
				}
			})
		}
		_ = c
	})
}

// If one charge never fits, the decision's RetryAfter is Never.
func TestDecisionWaitsForTheSlowest(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		key := newKey(t, "k")
		fast := core.Charge{Policy: limited(t, "fast", core.PerSecond(1)), Key: key, Cost: 1}
		slow := core.Charge{Policy: limited(t, "slow", core.PerMinute(1)), Key: key, Cost: 1}
		never := core.Charge{Policy: limited(t, "never", core.PerMinute(1)), Key: key, Cost: 2}
		shadow := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "shadow", Algorithm: frozen(1), Shadow: true}), Key: key, Cost: 2}
		decide(t, g, fast, slow)
		d := decide(t, g, fast, slow, shadow)
		if wait := d.RetryAfter(); d.Allowed || wait != time.Minute {
			t.Errorf("%s", show(d))
		}
		d = decide(t, g, fast, never, slow)
		if d.Allowed || d.RetryAfter() != core.Never {
			t.Errorf("%s", show(d))
		}
	})
}
