package core_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// dailyOf returns a Raisable policy of limit units a day, by both algorithms that have days.
func dailyOf(t *testing.T, limit int64, hold time.Duration) []*core.Policy {
	t.Helper()
	return []*core.Policy{
		newPolicy(t, core.PolicyConfig{Name: "window", Raisable: true, Hold: hold,
			Algorithm: core.FixedWindow{Limit: limit, Window: 24 * time.Hour}}),
		newPolicy(t, core.PolicyConfig{Name: "days", Raisable: true, Hold: hold,
			Algorithm: core.Calendar{Limit: limit, Every: core.PeriodDay, In: time.UTC}}),
	}
}

// nextDay returns the wait until a day has begun, and the one until the day after has.
func nextDay(c *core.ManualClock) (one, two time.Duration) {
	one = 24*time.Hour - c.Now().Sub(c.Now().Truncate(24*time.Hour))
	return one, one + 24*time.Hour
}

func raiseBy(t *testing.T, g *core.Gate, c core.Charge, n int64, until time.Time) {
	t.Helper()
	adjust(t, g, core.Adjustment{ID: fmt.Sprint(n, until), Policy: c.Policy, Key: c.Key, Raise: n, Until: until})
}

func TestRefundAfterRaisePaysDebt(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for _, p := range dailyOf(t, 2, 0) {
			c.Set(time.UnixMicro(epoch))
			one := core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 1}
			other := charge(t, g, one)
			settle(t, charge(t, g, one), 2)
			raiseBy(t, g, one, 1, c.Now().Add(time.Hour))
			cancel(t, other)
			day, _ := nextDay(c)
			c.Advance(day)
			if n := used(t, g, p, one.Key); n != 0 {
				t.Errorf("%s: the next day begins with %d", p.Name(), n)
			}
		}
	})
}

// What a hold had taken when it ended is owed by nobody, whenever somebody asks.
func TestExpiredHoldLeavesNoDebt(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for _, p := range dailyOf(t, 3, 30*time.Second) {
			for _, tt := range []struct {
				name  string
				early time.Duration // before the day ends
				owed  int64
			}{{"in its day", 31 * time.Second, 1}, {"with its day", 30 * time.Second, 3}, {"after its day", 29 * time.Second, 3}} {
				c.Set(time.UnixMicro(epoch))
				day, _ := nextDay(c)
				c.Advance(day - tt.early)
				one := core.Charge{Policy: p, Key: newKey(t, "k", tt.name), Cost: 1}
				for range 2 {
					charge(t, g, one).Abandon()
				}
				settle(t, charge(t, g, one), 4)
				c.Advance(tt.early)
				if n := used(t, g, p, one.Key); n != tt.owed {
					t.Errorf("%s, %s: the next day begins with %d, want %d", p.Name(), tt.name, n, tt.owed)
				}
			}
		}
	})
}

// All decisions of one window tell one time at which it ends.
func TestResetAtIsTheEndOfTheWindow(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for _, p := range dailyOf(t, 2, 0) {
			c.Set(time.UnixMicro(epoch))
			day, _ := nextDay(c)
			end := c.Now().Add(day)
			for i := range 4 { // two are denied
				d := decide(t, g, core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 1})
				if at, _ := d.At(0).ResetTime(); !at.Equal(end) {
					t.Errorf("%s: decision %d tells %v, want %v", p.Name(), i, at, end)
				}
				c.Advance(1234567 * time.Microsecond)
			}
		}
	})
}

// After the wait of a denial all of its charges fit, and not a microsecond earlier, whatever raises
// end meanwhile.
func TestWaitsOfSeveralChargesKnowWhenRaisesEnd(t *testing.T) {
	t.Parallel()
	week := 7 * 24 * time.Hour
	tests := []struct {
		name  string
		limit core.Algorithm
		raise map[int64]time.Duration
		spend int64
		cost  int64
		wait  time.Duration // that of the minute is 40 s
	}{
		{"until after the wait", core.FixedWindow{Limit: 1, Window: week}, map[int64]time.Duration{1: 41 * time.Second}, 1, 1, 40 * time.Second},
		{"until the wait ends", core.FixedWindow{Limit: 1, Window: week}, map[int64]time.Duration{1: 40 * time.Second}, 1, 1, 0},
		{"of a second", core.FixedWindow{Limit: 1, Window: week}, map[int64]time.Duration{1: time.Second}, 1, 1, 0},
		{"of a calendar", core.Calendar{Limit: 1, Every: core.PeriodMonth, In: time.UTC}, map[int64]time.Duration{1: time.Second}, 1, 1, 0},
		{"of a budget", frozen(1), map[int64]time.Duration{1: time.Second}, 1, 1, core.Never},
		{"of a budget, until after the wait", frozen(1), map[int64]time.Duration{1: 41 * time.Second}, 1, 1, 40 * time.Second},
		{"that is not needed", core.FixedWindow{Limit: 9, Window: week}, map[int64]time.Duration{1: time.Second}, 1, 1, 40 * time.Second},
		{"two, of which one stays", core.FixedWindow{Limit: 1, Window: week}, map[int64]time.Duration{1: time.Minute, 2: time.Second}, 1, 1, 40 * time.Second},
		{"two, of which one stays, and a larger cost", core.FixedWindow{Limit: 1, Window: week}, map[int64]time.Duration{1: time.Minute, 2: time.Second}, 1, 2, core.Never},
		{"in the next window", core.FixedWindow{Limit: 1, Window: 15 * time.Second}, map[int64]time.Duration{1: 41 * time.Second}, 1, 2, 40 * time.Second},
		{"in the next window, no more", core.FixedWindow{Limit: 1, Window: 15 * time.Second}, map[int64]time.Duration{1: 39 * time.Second}, 1, 2, core.Never},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
				c.Set(time.UnixMicro(epoch).Truncate(time.Minute).Add(20 * time.Second))
				raised := core.Charge{Key: newKey(t, "k"), Cost: tt.spend,
					Policy: newPolicy(t, core.PolicyConfig{Name: "raised", Algorithm: tt.limit, Raisable: true})}
				minute := core.Charge{Key: raised.Key, Cost: 1,
					Policy: limited(t, "minute", core.FixedWindow{Limit: 1, Window: time.Minute})}
				for n, lasts := range tt.raise {
					raiseBy(t, g, raised, n, c.Now().Add(lasts))
				}
				decide(t, g, raised, minute)
				raised.Cost = tt.cost
				want := tt.wait
				if want == 0 { // until the raised limit's period ends
					d := peek(t, g, raised)
					want = d.At(0).ResetAfter
				}
				for _, charges := range [][]core.Charge{{raised, minute}, {minute, raised}} {
					if d := decide(t, g, charges...); d.Allowed || d.RetryAfter() != want {
						t.Errorf("%v, want %v: %s", d.RetryAfter(), want, show(d))
					}
				}
				if want == core.Never {
					want = 50 * 365 * 24 * time.Hour
				} else {
					c.Advance(want - time.Microsecond)
					if d := peek(t, g, raised, minute); d.Allowed {
						t.Errorf("before %v: %s", want, show(d))
					}
					want = time.Microsecond
				}
				c.Advance(want)
				if d := peek(t, g, raised, minute); d.Allowed != (tt.wait != core.Never) {
					t.Errorf("after %v: %s", tt.wait, show(d))
				}
			})
		})
	}
}

// A remembered denial tells the wait that heeds raises, too.
func TestRememberedWaitHeedsRaises(t *testing.T) {
	t.Parallel()
	eachCachedGate(t, func(t *testing.T, gates *cachedGate) {
		key := newKey(t, "k")
		month := core.Charge{Key: key, Cost: 1, Policy: newPolicy(t, core.PolicyConfig{Name: "month", Raisable: true,
			Algorithm: core.Calendar{Limit: 1, Every: core.PeriodMonth, In: time.UTC}})}
		minute := core.Charge{Key: key, Cost: 1, Policy: limited(t, "minute", core.FixedWindow{Limit: 1, Window: time.Minute})}
		raiseBy(t, gates.Gate, month, 1, gates.clock.Now().Add(time.Second))
		decide(t, gates.Gate, month, minute)
		now := peek(t, gates.uncached, month)
		wait := now.At(0).ResetAfter
		decide(t, gates.Gate, month, minute)
		gates.clock.Advance(time.Millisecond)
		d := decide(t, gates.Gate, month, minute)
		if d.Source != core.SourceCache || d.RetryAfter() != wait-time.Millisecond {
			t.Errorf("%v by %v, want %v: %s", d.RetryAfter(), d.Source, wait-time.Millisecond, show(d))
		}
	})
}
