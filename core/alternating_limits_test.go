package core_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// alternatingLimits are limits of one policy that decide on a key in alternation, as while a new
// deployment replaces an old one. Together they admit at most that many units in one instant.
var alternatingLimits = []struct {
	name   string
	limits []core.Algorithm
	most   int64
}{
	{"bursts", []core.Algorithm{
		core.TokenBucket{Rate: 100, Per: time.Hour, Burst: 100}, core.TokenBucket{Rate: 100, Per: time.Hour, Burst: 10},
	}, 100},
	{"three bursts", []core.Algorithm{
		core.TokenBucket{Rate: 100, Per: time.Hour, Burst: 100}, core.TokenBucket{Rate: 100, Per: time.Hour, Burst: 50},
		core.TokenBucket{Rate: 100, Per: time.Hour, Burst: 10},
	}, 100},
	{"bursts in rising order", []core.Algorithm{
		core.TokenBucket{Rate: 7, Per: time.Hour, Burst: 10}, core.TokenBucket{Rate: 7, Per: time.Hour, Burst: 50},
		core.TokenBucket{Rate: 7, Per: time.Hour, Burst: 100},
	}, 100},
	{"periods", []core.Algorithm{core.PerHour(100), core.PerMinute(100)}, 100},
	// A bucket of 100 a minute that is full is not full at 100 an hour.
	{"periods in rising order", []core.Algorithm{core.PerMinute(100), core.PerHour(100)}, 200},
	{"tokens below a microsecond", []core.Algorithm{
		core.TokenBucket{Rate: 1_000_000_000, Per: time.Second, Burst: 1900}, core.TokenBucket{Rate: 1_000_000_000, Per: time.Second, Burst: 1100},
	}, 1900},
	{"leaky buckets", []core.Algorithm{
		core.LeakyBucket{Rate: 100, Per: time.Hour, Capacity: 100}, core.LeakyBucket{Rate: 100, Per: time.Hour, Capacity: 10},
	}, 100},
	{"frozen", []core.Algorithm{frozen(100), frozen(10)}, 100},
	{"fixed windows", []core.Algorithm{
		core.FixedWindow{Limit: 100, Window: time.Hour}, core.FixedWindow{Limit: 10, Window: time.Hour},
	}, 100},
	{"window widths", []core.Algorithm{
		core.FixedWindow{Limit: 100, Window: time.Hour}, core.FixedWindow{Limit: 100, Window: time.Minute},
	}, 200},
	{"aligned and from first", []core.Algorithm{
		core.FixedWindow{Limit: 100, Window: time.Hour}, core.FixedWindow{Limit: 100, Window: time.Minute, FromFirst: true},
	}, 200},
	{"two counters", []core.Algorithm{
		core.SlidingWindow{Limit: 100, Window: time.Hour}, core.SlidingWindow{Limit: 10, Window: time.Hour},
	}, 100},
	{"windows of buckets", []core.Algorithm{
		core.SlidingWindow{Limit: 100, Window: time.Hour, Buckets: 10}, core.SlidingWindow{Limit: 10, Window: time.Hour, Buckets: 60},
	}, 100},
	{"logs", []core.Algorithm{
		core.SlidingLog{Windows: []core.Window{{Limit: 100, Width: time.Hour}}}, core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Minute}}},
	}, 100},
	// The start of each zone's period restarts the count once.
	{"zones", []core.Algorithm{
		core.Calendar{Limit: 100, Every: core.PeriodDay, In: time.UTC}, core.Calendar{Limit: 100, Every: core.PeriodDay, In: loadZone("America/New_York")},
	}, 200},
	{"three zones", []core.Algorithm{
		core.Calendar{Limit: 100, Every: core.PeriodDay, In: time.UTC}, core.Calendar{Limit: 100, Every: core.PeriodDay, In: loadZone("America/New_York")},
		core.Calendar{Limit: 100, Every: core.PeriodDay, In: loadZone("America/Sao_Paulo")},
	}, 300},
	{"anchors", []core.Algorithm{
		core.Calendar{Limit: 100, Every: core.PeriodMonth, In: time.UTC},
		core.Calendar{Limit: 100, Every: core.PeriodMonth, In: time.UTC, Anchor: time.Date(2025, 1, 5, 0, 0, 0, 0, time.UTC)},
	}, 200},
}

// Alternating limits charge, cancel and settle at random, within microseconds of a clock that steps
// back and forth. Those whose units come back in between only charge, in one instant. The kept units
// never exceed what all limits together admit at once.
func TestAlternatingLimitsAtRandom(t *testing.T) {
	t.Parallel()
	for _, v := range alternatingLimits {
		most, still := v.most, false
		switch v.name {
		case "tokens below a microsecond": // they refill in the meantime
			still = true
		case "window widths", "aligned and from first":
			// Any charge under the shorter window restarts the count, even one that is cancelled.
			still = true
		case "periods":
			most = 200 // the order is random here
		}
		t.Run(v.name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
				policy := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: changing(v.limits...)})
				rng := redistest.Rand(t)
				for i := range rounds(t, 40) {
					c.Set(noon.Add(90 * time.Second))
					charge := core.Charge{Policy: policy, Key: newKey(t, fmt.Sprint(i)), Cost: core.NoCost}
					type kept struct {
						*core.Reservation
						cost int64
					}
					var held []kept
					sum := int64(0)
					for range 30 {
						if !still {
							c.Advance(time.Duration(rng.Int64N(7)-3) * time.Microsecond)
						}
						charge.Limit = v.limits[rng.IntN(len(v.limits))]
						charge.Cost = 1 + rng.Int64N([]int64{3, 30, 100}[rng.IntN(3)])
						if n := len(held); n > 0 && !still && rng.IntN(3) == 0 {
							at := max(0, n-1-rng.IntN(4))
							actual := rng.Int64N(2) * rng.Int64N(held[at].cost)
							noError(t, held[at].Settle(t.Context(), actual))
							sum += actual - held[at].cost
							held = slices.Delete(held, at, at+1)
						} else if r, _, err := g.Reserve(t.Context(), 0, charge); err != nil {
							t.Fatal(err)
						} else if r != nil {
							sum += charge.Cost
							held = append(held, kept{r, charge.Cost})
						}
						if sum > most {
							t.Fatalf("history %d: %d units kept, want at most %d", i, sum, most)
						}
					}
				}
			})
		})
	}
}

// Two alternating zones or anchors admit their limits in each of their periods, and no more.
func TestAlternatingPeriods(t *testing.T) {
	t.Parallel()
	day := func(in *time.Location, anchor time.Time) core.Algorithm {
		return core.Calendar{Limit: 10, Every: core.PeriodDay, In: in, Anchor: anchor}
	}
	for name, limits := range map[string][]core.Algorithm{
		"zones":   {day(time.UTC, time.Time{}), day(loadZone("America/New_York"), time.Time{})},
		"anchors": {day(time.UTC, noon.Add(-6*time.Hour)), day(time.UTC, noon.Add(6*time.Hour))},
	} {
		t.Run(name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
				p := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: changing(limits...)})
				c.Set(noon)
				const days = 3
				got := int64(0)
				for i := range days * 24 {
					n, _, err := atMost(g, t.Context(), under(i, core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 100})...)
					noError(t, err)
					got += n
					c.Advance(time.Hour)
				}
				if got < 2*10*days || got > 2*10*(days+1) {
					t.Errorf("%d admitted in %d days", got, days)
				}
			})
		})
	}
}

// A clock that steps forward and back locks no key for longer than the widest of its alternating
// limits would.
func TestAlternatingLimitsAfterClockStep(t *testing.T) {
	t.Parallel()
	limits := []core.Algorithm{
		core.TokenBucket{Rate: 1, Per: time.Minute, Burst: 20}, core.TokenBucket{Rate: 1, Per: time.Minute, Burst: 10},
		core.TokenBucket{Rate: 7, Per: time.Minute, Burst: 10},
	}
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		policy := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: changing(limits...)})
		for _, order := range [][]int{{0}, {1}, {2}, {0, 1}, {1, 0}, {2, 1, 0}, {0, 1, 2}, {0, 2, 1}} {
			charge := core.Charge{Policy: policy, Key: newKey(t, fmt.Sprint(order)), Cost: 1}
			c.Advance(365 * 24 * time.Hour)
			for _, i := range order {
				gatetest.Must(g.Decide(t.Context(), under(i, charge)...))(t)
			}
			c.Advance(-365 * 24 * time.Hour)
			for range 3 {
				for _, i := range order {
					gatetest.Must(g.Peek(t.Context(), under(i, charge)...))(t)
				}
				c.Advance(10 * time.Minute)
			}
			for _, i := range order {
				if d, _ := g.Peek(t.Context(), under(i, charge)...); !d.Allowed {
					t.Errorf("%v: locked for 20 minutes: %s", order, show(d))
				}
			}
			c.Set(time.UnixMicro(epoch))
		}
	})
}

// A refund under another limit gives back what was charged, and nothing of other charges.
func TestCancelUnderAnotherLimit(t *testing.T) {
	t.Parallel()
	fixed := func(n int64) core.Algorithm { return core.FixedWindow{Limit: n, Window: time.Hour} }
	sliding := func(n int64) core.Algorithm { return core.SlidingWindow{Limit: n, Window: time.Hour} }
	buckets := func(n int64) core.Algorithm { return core.SlidingWindow{Limit: n, Window: time.Hour, Buckets: 10} }
	log := func(n int64) core.Algorithm {
		return core.SlidingLog{Windows: []core.Window{{Limit: n, Width: time.Hour}}}
	}
	calendar := func(n int64) core.Algorithm { return core.Calendar{Limit: n, Every: core.PeriodDay, In: time.UTC} }
	tokens := func(n int64) core.Algorithm { return core.TokenBucket{Rate: 1, Per: time.Hour, Burst: n} }
	tests := []struct {
		name                string
		from, to            core.Algorithm
		before, cost, after int64 // charged in this order; the middle one is cancelled
		used, usedNow       int64 // under the old limit, and under the new one
	}{
		{"fixed window", fixed(100), fixed(60), 0, 80, 20, 20, 20},
		{"two counters", sliding(100), sliding(60), 0, 80, 20, 20, 20},
		{"two counters, far above", sliding(100), sliding(10), 0, 50, 50, 50, 50},
		{"windows of buckets", buckets(100), buckets(60), 0, 80, 20, 20, 20},
		{"log", log(100), log(60), 0, 80, 20, 20, 20},
		{"calendar", calendar(100), calendar(60), 0, 80, 20, 20, 20},
		{"token bucket", tokens(100), tokens(60), 0, 80, 20, 20, 20},
		{"token bucket, above the new limit", tokens(100), tokens(60), 0, 20, 80, 80, 80},
		{"token bucket, middle charge", tokens(100), tokens(60), 30, 20, 50, 80, 80},
		{"token bucket, last charge", tokens(100), tokens(60), 70, 30, 0, 70, 70},
		{"frozen", frozen(100), frozen(60), 0, 80, 20, 20, 20},
		{"frozen, most is kept", frozen(100), frozen(60), 0, 20, 80, 80, 80},
		{"slower", core.PerSecond(10), core.TokenBucket{Rate: 1, Per: time.Second, Burst: 10}, 9, 1, 0, 9, 1},
		{"slower, not the last charge", core.PerSecond(10), core.TokenBucket{Rate: 1, Per: time.Second, Burst: 10}, 4, 5, 1, 5, 1},
		{"faster", core.TokenBucket{Rate: 1, Per: time.Second, Burst: 10}, core.PerSecond(10), 0, 5, 1, 1, 10},
		// 1/7 s is a fractional microsecond. The refund under the charge's own limit loses nothing.
		{"fractional microseconds", core.PerSecond(7), core.PerSecond(3), 1, 4, 1, 2, 1},
	}
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for _, v := range tests {
			t.Run(v.name, func(t *testing.T) {
				charge := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: changing(v.from, v.to)}), Key: newKey(t, v.name), Cost: core.NoCost}
				charge.Cost = units(v.before)
				decide(t, g, charge)
				charge.Cost = v.cost
				held, d := reserve(t, g, 0, charge)
				if held == nil {
					t.Fatal(show(d))
				}
				charge.Cost = units(v.after)
				decide(t, g, charge)
				noError(t, held.Cancel(t.Context()))
				charge.Cost = core.NoCost
				wantUsed(t, g, charge.Policy, charge.Key, v.used)
				if d, _ = g.Peek(t.Context(), under(1, charge)...); d.At(0).Used != v.usedNow {
					t.Errorf("%d used under the new limit, want %d", d.At(0).Used, v.usedNow)
				}
			})
		}
	})
}

// After a step back, the limit of a bucket that decides first says what is left of the level. The
// decisions of others change nothing of that.
func TestLimitsAgreeAfterClockBack(t *testing.T) {
	t.Parallel()
	families := map[string][]core.Algorithm{
		"whole":      {core.TokenBucket{Rate: 4, Per: time.Second, Burst: 3}, core.TokenBucket{Rate: 2, Per: time.Second, Burst: 3}, core.TokenBucket{Rate: 2, Per: time.Second, Burst: 6}},
		"fractional": {core.TokenBucket{Rate: 7, Per: time.Second, Burst: 3}, core.TokenBucket{Rate: 3, Per: time.Second, Burst: 4}, core.TokenBucket{Rate: 2, Per: 3 * time.Second, Burst: 1}},
		"leaky":      {core.LeakyBucket{Rate: 7, Per: time.Second, Capacity: 3}, core.LeakyBucket{Rate: 2, Per: time.Second, Capacity: 3}, core.LeakyBucket{Rate: 2, Per: time.Second, Capacity: 6}},
	}
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for name, limits := range families {
			policy := newPolicy(t, core.PolicyConfig{Name: name, Algorithm: changing(limits...)})
			for _, back := range []time.Duration{time.Microsecond, 300 * time.Millisecond, 700 * time.Millisecond, 2 * time.Second, time.Hour} {
				for order := range 27 {
					at := [3]int{order % 3, order / 3 % 3, order / 9}
					charge := core.Charge{Policy: policy, Key: newKey(t, fmt.Sprint(name, back, order)), Cost: 100, Clamp: true}
					full := func(limit int) string {
						charge.Limit = limits[limit]
						return show(decide(t, g, charge))
					}
					full(at[0])
					c.Advance(-back)
					first := full(at[1])
					full(at[2])
					if again := full(at[1]); again != first {
						t.Errorf("%s, %v back, limits %v: %s\nthen %s", name, back, at, first, again)
					}
				}
			}
		}
	})
}

// At the start of 1970, where a zero ManualClock stands, every algorithm counts and refunds.
func TestAlgorithmsAtZeroTime(t *testing.T) {
	for _, l := range append(limitsOfTen, []namedLimit{{"window of one bucket", core.SlidingWindow{Limit: 10, Window: time.Hour, Buckets: 1}}}...) {
		t.Run(l.name, func(t *testing.T) {
			g := memoryGate(t, core.Config{Clock: new(core.ManualClock).Now})
			policy, key := limited(t, "p", l.algorithm), newKey(t, "k")
			held, d := reserve(t, g, 0, core.Charge{Policy: policy, Key: key, Cost: 4})
			if r := d.At(0); r.Used != 4 || r.Remaining != 6 {
				t.Error(show(d))
			}
			cancel(t, held)
			wantUsed(t, g, policy, key, 0)
		})
	}
}
