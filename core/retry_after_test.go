package core_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
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
func eachWaitLimit(
	t *testing.T, n int, spend func(rng *rand.Rand, g *core.Gate, c *core.ManualClock, charge core.Charge) error,
) {
	t.Helper()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		rng := redistest.Rand(t)
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
				if err := spend(rng, g, c, charge); err != nil {
					t.Fatalf("%T%+v, cost %d: %v", w.algorithm, w.algorithm, charge.Cost, err)
				}
				charge.Cost = 1 + rng.Int64N(w.limit)
				if rng.IntN(2) > 0 {
					charge.Cost = w.limit - rng.Int64N(min(w.limit, 3))
				}
				if err := checkWaits(t, g, c, func(int) core.Charge { return charge }); err != nil {
					t.Errorf("%T%+v, cost %d: %v", w.algorithm, w.algorithm, charge.Cost, err)
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
	eachWaitLimit(t, 16, func(rng *rand.Rand, g *core.Gate, c *core.ManualClock, charge core.Charge) error {
		d, err := g.Decide(t.Context(), charge)
		if wait := d.RetryAfter(); err == nil && wait > 0 && rng.IntN(4) == 0 && c.Now().Add(wait).Year() < 2050 {
			c.Advance(wait - time.Microsecond)
			if d := decide(t, g, charge); d.Allowed {
				return fmt.Errorf("the charge passes a microsecond before its wait of %v", wait)
			}
			c.Advance(time.Microsecond)
			if d := decide(t, g, charge); !d.Allowed {
				return fmt.Errorf("the charge does not pass after its wait of %v: %s", wait, show(d))
			}
		}
		return err
	})
}

// Waits are exact too if Settle charges more than there was room for.
func TestWaitsOfDebtsAreExact(t *testing.T) {
	t.Parallel()
	eachWaitLimit(t, 8, func(rng *rand.Rand, g *core.Gate, _ *core.ManualClock, charge core.Charge) error {
		r, d, err := g.Reserve(t.Context(), 0, charge)
		if err != nil || !d.Allowed {
			return err
		}
		return r.Settle(t.Context(), charge.Cost+rng.Int64N(charge.Cost+1))
	})
}

// checkWaits checks the waits of a charge and leaves the clock where it was. It looks ahead with the
// charges 1 to 6, which stand alike, because who looks ahead drops the raises that have ended then.
func checkWaits(t testing.TB, g *core.Gate, c *core.ManualClock, charge func(i int) core.Charge) error {
	start := c.Now()
	defer c.Set(start)
	d := peek(t, g, charge(0))
	found := d.At(0)
	if wait := d.RetryAfter(); wait != found.RetryAfter {
		return fmt.Errorf("RetryAfter is %v, and %v in the only result", wait, found.RetryAfter)
	}
	for i, w := range []struct {
		name  string
		wait  time.Duration
		due   bool // not to be 0
		holds func(core.Result) bool
	}{
		{"RetryAfter", found.RetryAfter, !found.Allowed, func(r core.Result) bool { return r.Allowed }},
		{"NextAfter", found.NextAfter, found.Used > 0, func(r core.Result) bool { return r.Remaining > found.Remaining }},
		{"ResetAfter", found.ResetAfter, found.Used > 0, func(r core.Result) bool { return r.ResetAfter == 0 }},
	} {
		at := []time.Duration{w.wait - time.Microsecond, w.wait}
		switch {
		case w.wait == 0 && w.due:
			return fmt.Errorf("%s is 0 in %s", w.name, show(d))
		case w.wait == 0:
			continue
		case w.wait == core.Never:
			at = nil
			first := start.Truncate(time.Minute).Add(time.Minute).Sub(start)
			for k := range 5 {
				at = append(at, first+time.Duration(k)*time.Minute)
			}
		case w.wait%time.Microsecond != 0:
			return fmt.Errorf("%s is %v", w.name, w.wait)
		}
		for j, wait := range at {
			c.Set(start.Add(wait))
			then := peek(t, g, charge(1+2*i+j%2))
			if want := w.wait != core.Never && j == 1; w.holds(then.At(0)) != want {
				return fmt.Errorf("%s is %v of %s\nafter %v: %s", w.name, w.wait, show(d), wait, show(then))
			}
		}
		c.Set(start)
	}
	return nil
}

// The delay of a Reservation is the longest of its charges, and so is the wait of a decision. Shadows
// cause none.
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
		if d := decide(t, g, charges...); d.Allowed || d.RetryAfter() != 48*time.Hour {
			t.Errorf("want the wait of the day: %s", show(d))
		}
		charges[0].Cost = 2
		if d := decide(t, g, charges...); d.Allowed || d.RetryAfter() != core.Never {
			t.Errorf("a charge never fits: %s", show(d))
		}
	})
}

// history is one random history on several keys, all of which stand alike after it.
type history struct {
	*testing.T
	g        *core.Gate
	c        *core.ManualClock
	rng      *rand.Rand
	policy   *core.Policy
	raisable bool
	keys     []core.Key
	held     [][]*core.Reservation // of each key
	n        int                   // steps so far
}

func newHistory(
	t *testing.T, g *core.Gate, c *core.ManualClock, rng *rand.Rand, cfg core.PolicyConfig, keys int,
) *history {
	h := &history{T: t, g: g, c: c, rng: rng, raisable: cfg.Raisable}
	h.policy = newPolicy(t, cfg)
	for i := range keys {
		h.keys = append(h.keys, newKey(t, "k", cfg.Name, fmt.Sprint(i, " ", rng.Uint64())))
	}
	h.held = make([][]*core.Reservation, keys)
	return h
}

// charge returns a charge on key i.
func (h *history) charge(i int, cost int64) core.Charge {
	return core.Charge{Policy: h.policy, Key: h.keys[i], Cost: cost}
}

// step does one thing on every key: it raises the limit, corrects what is used, or charges, settles,
// cancels and abandons.
func (h *history) step() {
	h.n++
	cost, actual, op := 1+h.rng.Int64N(4), h.rng.Int64N(9), h.rng.IntN(9)
	pick := h.rng.IntN(8)
	ends := h.c.Now().Add(time.Duration(1+h.rng.Int64N(200_000_000)) * time.Microsecond)
	raise := core.Adjustment{
		ID: fmt.Sprint(h.n), Policy: h.policy, Units: h.rng.Int64N(7) - 3, Raise: 1 + h.rng.Int64N(5), Until: ends,
	}
	for i := range h.keys {
		held := h.held[i]
		switch {
		case op < 2 && h.raisable:
			raise.Key = h.keys[i]
			adjust(h, h.g, raise)
		case op < 4 && pick < len(held):
			settle(h, held[pick], actual)
			h.held[i] = slices.Delete(held, pick, pick+1)
		case op < 5 && pick < len(held):
			cancel(h, held[pick])
			h.held[i] = slices.Delete(held, pick, pick+1)
		default:
			r, _, err := h.g.Charge(h.Context(), h.charge(i, cost))
			noError(h, err)
			if r != nil {
				r.Abandon() // a hold runs out by the clock of the test
				h.held[i] = append(held, r)
			}
		}
	}
}

func (h *history) move(most time.Duration) {
	h.c.Advance(time.Duration(h.rng.Int64N(most.Microseconds()+1)) * time.Microsecond)
}

// Waits are exact while raises end, debts are owed and refunds pay some of them.
func TestWaitsOfRaisesAreExact(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		rng := redistest.Rand(t)
		for _, cfg := range []core.PolicyConfig{
			{Name: "window", Raisable: true, Algorithm: core.FixedWindow{Limit: 5, Window: time.Minute}},
			{Name: "minutes", Raisable: true, Algorithm: core.Calendar{Limit: 5, Every: core.PeriodMinute, In: time.UTC}},
			{Name: "frozen", Raisable: true, Algorithm: frozen(5)},
		} {
			for range rounds(t, 120) {
				c.Set(time.UnixMicro(epoch))
				h := newHistory(t, g, c, rng, cfg, 7)
				for range 1 + rng.IntN(12) {
					h.step()
					h.move(15 * time.Second)
				}
				cost := 1 + rng.Int64N(9)
				if err := checkWaits(t, g, c, func(i int) core.Charge { return h.charge(i, cost) }); err != nil {
					t.Fatalf("%s: %v", cfg.Name, err)
				}
			}
		}
	})
}

// A hold that has expired has gone, whether or not somebody asked in between.
func TestAskingChangesNothing(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		rng := redistest.Rand(t)
		for i, a := range []core.Algorithm{
			core.FixedWindow{Limit: 5, Window: time.Minute},
			core.FixedWindow{Limit: 5, Window: time.Minute, FromFirst: true},
			core.Calendar{Limit: 5, Every: core.PeriodMinute, In: time.UTC},
			core.SlidingWindow{Limit: 5, Window: time.Minute},
			core.SlidingWindow{Limit: 5, Window: time.Minute, Buckets: 6},
			core.SlidingLog{Windows: []core.Window{{Limit: 5, Width: time.Minute}}},
			core.PerMinute(5), core.TokenBucket{Rate: 7, Per: time.Minute, Burst: 5},
			core.LeakyBucket{Rate: 5, Per: time.Minute, Capacity: 5}, frozen(5),
		} {
			_, shared := a.(core.Calendar)
			fixed, ok := a.(core.FixedWindow)
			cfg := core.PolicyConfig{Name: fmt.Sprint("p", i), Algorithm: a, Hold: 20 * time.Second}
			cfg.Raisable = shared || ok && !fixed.FromFirst
			for range rounds(t, 80) {
				c.Set(time.UnixMicro(epoch))
				h := newHistory(t, g, c, rng, cfg, 2)
				for range 1 + rng.IntN(10) {
					h.step()
					for range rng.IntN(4) {
						h.move(20 * time.Second)
						peek(t, g, h.charge(1, 1))
					}
				}
				one, other := show(peek(t, g, h.charge(0, 1))), show(peek(t, g, h.charge(1, 1)))
				if one != other {
					t.Fatalf("%T%+v\nnobody asked: %s\nsomebody did: %s", a, a, one, other)
				}
			}
		}
	})
}
