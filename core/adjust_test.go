package core_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// quotasOfTen are limits of every algorithm that is a quota. None frees a unit within minutes.
var quotasOfTen = []struct {
	name      string
	algorithm core.Algorithm
	next      time.Duration // until the next period has begun, 0 if there is none
}{
	{"fixed window", core.FixedWindow{Limit: 10, Window: 24 * time.Hour}, 24 * time.Hour},
	{"frozen", frozen(10), 0},
	{"calendar", core.Calendar{Limit: 10, Every: core.PeriodMonth, In: time.UTC}, 31 * 24 * time.Hour},
}

// eachQuota runs f with a Raisable policy of each algorithm on every Gate.
func eachQuota(t *testing.T, f func(t *testing.T, g *core.Gate, c *core.ManualClock, p *core.Policy, next time.Duration)) {
	t.Helper()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for _, q := range quotasOfTen {
			t.Run(q.name, func(t *testing.T) {
				c.Set(time.UnixMicro(epoch))
				f(t, g, c, newPolicy(t, core.PolicyConfig{Name: "quota", Algorithm: q.algorithm, Raisable: true}), q.next)
			})
		}
	})
}

func raiseUsed(t testing.TB, g *core.Gate, c core.Charge, used int64) int64 {
	t.Helper()
	return gatetest.Must(g.RaiseUsed(t.Context(), c, used, time.Time{}))(t)
}

func adjust(t testing.TB, g *core.Gate, a core.Adjustment) bool {
	t.Helper()
	return gatetest.Must(g.Adjust(t.Context(), a))(t)
}

func TestRaiseUsedRaisesByMaximum(t *testing.T) {
	t.Parallel()
	eachQuota(t, func(t *testing.T, g *core.Gate, c *core.ManualClock, p *core.Policy, next time.Duration) {
		key := newKey(t, "k", t.Name())
		for _, step := range []struct{ atLeast, added, used int64 }{
			{0, 0, 0}, {3, 3, 3}, {3, 0, 3}, {2, 0, 3}, {7, 4, 7}, {12, 5, 12}, {500, 488, 500}, {15, 0, 500},
		} {
			if added := raiseUsed(t, g, core.Charge{Policy: p, Key: key}, step.atLeast); added != step.added {
				t.Errorf("RaiseUsed %d added %d, want %d", step.atLeast, added, step.added)
			}
			gatetest.Equal(t, used(t, g, p, key), step.used, "units in use after RaiseUsed %d", step.atLeast)
		}
		if next > 0 {
			c.Advance(next)
			wantUsed(t, g, p, key, 0)
		}
	})
}

// RaiseUsed forgives nothing of a debt, also under a policy that is not Raisable and has no ledger.
func TestRaiseUsedForgivesNoDebt(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for _, q := range quotasOfTen {
			if q.next == 0 {
				continue // has no next period, which would owe something
			}
			c.Set(time.UnixMicro(epoch))
			one := core.Charge{Policy: limited(t, "quota", q.algorithm), Key: newKey(t, "k", q.name), Cost: 10}
			settle(t, charge(t, g, one), 100)
			c.Advance(q.next)
			gatetest.Equal(t, raiseUsed(t, g, one, 95), 5, "%s: RaiseUsed added", q.name)
			c.Advance(q.next)
			gatetest.Equal(t, used(t, g, one.Policy, one.Key), 80, "%s: the period after begins with", q.name)
		}
	})
}

// The key of a debt lives until the debt is paid, which RaiseUsed does not hasten.
func TestRaiseUsedKeepsTheKeyOfADebt(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client := s.Client(t)
		g := redisGate(t, client, core.Config{Prefix: s.Prefix})
		day := core.FixedWindow{Limit: 10, Window: 24 * time.Hour}
		one := core.Charge{Policy: limited(t, "quota", day), Key: newKey(t, "k"), Cost: 10}
		settle(t, charge(t, g, one), 100)
		raiseUsed(t, g, one, 110)
		names := redistest.Keys(t, client, s.Prefix+"*")
		if ttl := client.PTTL(t.Context(), names[0]).Val(); len(names) != 1 || ttl < 8*day.Window {
			t.Errorf("%q, the first lives for %v", names, ttl)
		}
	})
}

// A figure above twice the limit counts as a whole: the raise that it was spent under may be lost with
// the data, and come after it.
func TestRaiseUsedBeforeItsRaise(t *testing.T) {
	t.Parallel()
	eachQuota(t, func(t *testing.T, g *core.Gate, c *core.ManualClock, p *core.Policy, _ time.Duration) {
		key := newKey(t, "k", t.Name())
		raiseUsed(t, g, core.Charge{Policy: p, Key: key}, 30)
		adjust(t, g, core.Adjustment{ID: "a", Policy: p, Key: key, Raise: 25, Until: c.Now().Add(time.Hour)})
		denies(t, g, core.Charge{Policy: p, Key: key, Cost: 6})
		admits(t, g, core.Charge{Policy: p, Key: key, Cost: 5})
		denies(t, g, core.Charge{Policy: p, Key: key, Cost: 1})
	})
}

func TestRaiseUsedIsForItsPeriod(t *testing.T) {
	t.Parallel()
	eachQuota(t, func(t *testing.T, g *core.Gate, c *core.ManualClock, p *core.Policy, next time.Duration) {
		key, read := newKey(t, "k", t.Name()), c.Now()
		charge := core.Charge{Policy: p, Key: key}
		if _, err := g.RaiseUsed(t.Context(), charge, 4, read); err != nil {
			t.Error(err)
		}
		if next == 0 {
			return
		}
		for _, at := range []time.Time{
			time.Date(1, 1, 1, 0, 0, 0, 0, time.FixedZone("", 3600)), time.Date(1969, 12, 31, 23, 0, 0, 0, time.UTC),
			time.Unix(0, 0), time.Unix(math.MaxInt64/2, 0),
		} {
			gatetest.Is(t, gatetest.Err(g.RaiseUsed(t.Context(), charge, 4, at)), core.ErrPeriod, "%v", at)
		}
		for _, away := range []time.Duration{next, -2 * next} {
			c.Set(read.Add(away))
			charge.Key = newKey(t, "k", t.Name(), away.String())
			key = charge.Key
			gatetest.Is(t, gatetest.Err(g.RaiseUsed(t.Context(), charge, 4, read)), core.ErrPeriod, "%v away", away)
			gatetest.Is(t, gatetest.Err(g.Adjust(t.Context(), core.Adjustment{
				ID: "a", Policy: p, Key: key, Units: 4, At: read,
			})), core.ErrPeriod, "%v away", away)
			gatetest.Equal(t, used(t, g, p, key), 0, "%v away: units are in use", away)
		}
		gatetest.Equal(t, raiseUsed(t, g, charge, 4), 4, "units were added in the present period")
	})
}

func TestAdjustCorrectsOnce(t *testing.T) {
	t.Parallel()
	eachQuota(t, func(t *testing.T, g *core.Gate, c *core.ManualClock, p *core.Policy, _ time.Duration) {
		key := newKey(t, "k", t.Name())
		decide(t, g, core.Charge{Policy: p, Key: key, Cost: 4})
		for _, step := range []struct {
			id    string
			units int64
			done  bool
			used  int64
		}{
			{"a", 3, true, 7}, {"a", 3, false, 7}, {"a", -5, false, 7}, {"b", -5, true, 2}, {"c", -5, true, 0},
			{"c", -5, false, 0}, {"d", 25, true, 25}, {"e", -24, true, 1},
		} {
			done := adjust(t, g, core.Adjustment{ID: step.id, Policy: p, Key: key, Units: step.units})
			if n := used(t, g, p, key); done != step.done || n != step.used {
				t.Errorf("%s by %d: applied %t, %d units in use, want %d", step.id, step.units, done, n, step.used)
			}
		}
		other := newKey(t, "other", t.Name())
		if !adjust(t, g, core.Adjustment{ID: "a", Policy: p, Key: other, Units: 1}) {
			t.Error("the id of another key was known")
		}
	})
}

func TestRaiseEnds(t *testing.T) {
	t.Parallel()
	eachQuota(t, func(t *testing.T, g *core.Gate, c *core.ManualClock, p *core.Policy, _ time.Duration) {
		key := newKey(t, "k", t.Name())
		charge := core.Charge{Policy: p, Key: key, Cost: 18}
		denies(t, g, charge)
		until := func(d time.Duration) time.Time { return c.Now().Add(d) }
		adjust(t, g, core.Adjustment{ID: "a", Policy: p, Key: key, Raise: 5, Until: until(time.Minute)})
		adjust(t, g, core.Adjustment{ID: "b", Policy: p, Key: key, Raise: 3, Until: until(time.Hour)})
		adjust(t, g, core.Adjustment{ID: "b", Policy: p, Key: key, Raise: 3, Until: until(time.Hour)})
		d := decide(t, g, charge)
		if r := d.At(0); !d.Allowed || r.Limit != 18 || r.Raised != 8 || r.Used != 18 || r.Remaining != 0 {
			t.Error(show(d))
		}
		for _, step := range []struct {
			after  time.Duration
			raised int64
		}{{time.Minute - time.Microsecond, 8}, {time.Microsecond, 3}, {time.Hour - time.Minute, 0}} {
			c.Advance(step.after)
			d := peek(t, g, core.Charge{Policy: p, Key: key, Cost: 1})
			if r := d.At(0); d.Allowed || r.Raised != step.raised || r.Limit != 10+step.raised || r.Used != 18 || r.Remaining != 0 {
				t.Errorf("%s\nwant %d raised", show(d), step.raised)
			}
		}
		done, err := g.Adjust(t.Context(), core.Adjustment{ID: "c", Policy: p, Key: key, Raise: 3, Until: c.Now()})
		if done || !errors.Is(err, core.ErrPeriod) {
			t.Errorf("a raise that has ended: %t, %v", done, err)
		}
	})
}

// A raise is taken back by its end, and never more than was raised.
func TestRaiseIsTakenBack(t *testing.T) {
	t.Parallel()
	eachQuota(t, func(t *testing.T, g *core.Gate, c *core.ManualClock, p *core.Policy, _ time.Duration) {
		key := newKey(t, "k", t.Name())
		hour, day := c.Now().Add(time.Hour), c.Now().Add(24*time.Hour)
		for i, step := range []struct {
			raise  int64
			until  time.Time
			raised int64
		}{{5, hour, 5}, {3, day, 8}, {-2, hour, 6}, {-9, hour, 3}, {-1, hour, 3}, {4, hour, 7}, {-3, day, 4}, {-4, hour, 0}, {2, day, 2}} {
			a := core.Adjustment{ID: fmt.Sprint(i), Policy: p, Key: key, Raise: step.raise, Until: step.until}
			if !adjust(t, g, a) || adjust(t, g, a) {
				t.Errorf("step %d is not applied once", i)
			}
			d := peek(t, g, core.Charge{Policy: p, Key: key, Cost: core.NoCost})
			if r := d.At(0); r.Raised != step.raised || r.Limit != 10+step.raised {
				t.Errorf("step %d: %s\nwant %d raised", i, show(d), step.raised)
			}
		}
		c.Advance(time.Hour)
		a := core.Adjustment{ID: "late", Policy: p, Key: key, Raise: -1, Until: hour}
		if done, err := g.Adjust(t.Context(), a); done || !errors.Is(err, core.ErrPeriod) {
			t.Errorf("a raise that has ended: %t, %v", done, err)
		}
	})
}

// A raise holds in each period until it ends, and a Reset leaves it.
func TestRaiseOutlivesPeriods(t *testing.T) {
	t.Parallel()
	eachQuota(t, func(t *testing.T, g *core.Gate, c *core.ManualClock, p *core.Policy, next time.Duration) {
		key := newKey(t, "k", t.Name())
		charge := core.Charge{Policy: p, Key: key, Cost: 15}
		adjust(t, g, core.Adjustment{ID: "a", Policy: p, Key: key, Raise: 5, Until: c.Now().Add(5 * 365 * 24 * time.Hour)})
		for range 3 {
			admits(t, g, charge)
			c.Advance(2 * next)
			noError(t, g.Reset(t.Context(), charge))
		}
	})
}

// A process obeys its own raise at once, and that of another within a second.
func TestRaiseLiftsRememberedDenials(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		c := newClock()
		var gates [2]*core.Gate
		for i := range gates {
			gates[i] = redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
			gates[i].InjectClock(micros(c))
		}
		p := newPolicy(t, core.PolicyConfig{Name: "quota", Algorithm: frozen(1), Raisable: true})
		charge := core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 1}
		decide(t, gates[0], charge)
		for _, g := range gates {
			denies(t, g, charge)
		}
		adjust(t, gates[0], core.Adjustment{ID: "a", Policy: p, Key: charge.Key, Raise: 2, Until: c.Now().Add(time.Hour)})
		admits(t, gates[0], charge)
		c.Advance(time.Second)
		admits(t, gates[1], charge)
	})
}

// A process that decides alone knows no raise, so it does not say that waiting is in vain.
func TestRaiseIsUnknownToLocal(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, Timeout: shortTimeout})
	s.Kill()
	p := newPolicy(t, core.PolicyConfig{Name: "quota", Algorithm: frozen(10), Raisable: true})
	charge := core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 11}
	d, err := g.Decide(t.Context(), charge)
	for err == nil && d.Source == core.SourceOverload { // this process starves
		d, err = g.Decide(t.Context(), charge)
	}
	if err != nil || d.Source != core.SourceLocal || d.Allowed || d.RetryAfter() != time.Second {
		t.Error(show(d), err)
	}
}

func TestAdjustmentIsValidated(t *testing.T) {
	t.Parallel()
	raisable := newPolicy(t, core.PolicyConfig{Name: "quota", Algorithm: frozen(10), Raisable: true})
	hour := time.Now().Add(time.Hour)
	tests := []struct {
		name   string
		change func(a *core.Adjustment)
		names  string
	}{
		{"no id", func(a *core.Adjustment) { a.ID = "" }, "Adjustment.ID"},
		{"a long id", func(a *core.Adjustment) { a.ID = strings.Repeat("x", 129) }, "Adjustment.ID"},
		{"nothing", func(a *core.Adjustment) { a.Units = 0 }, "Adjustment.Units and Raise"},
		{"too many units", func(a *core.Adjustment) { a.Units = math.MinInt64 }, "Adjustment.Units"},
		{"a negative raise without an end", func(a *core.Adjustment) { a.Raise = -1 }, "Adjustment.Until"},
		{"too negative a raise", func(a *core.Adjustment) { a.Raise, a.Until = math.MinInt64, hour }, "Adjustment.Raise"},
		{"too large a raise", func(a *core.Adjustment) { a.Raise, a.Until = math.MaxInt64, hour }, "Adjustment.Raise"},
		{"a raise without an end", func(a *core.Adjustment) { a.Raise = 1 }, "Adjustment.Until"},
		{"an end too far away", func(a *core.Adjustment) {
			a.Raise, a.Until = 1, time.Now().Add(101*366*24*time.Hour)
		}, "Adjustment.Until"},
		{"an end without a raise", func(a *core.Adjustment) { a.Until = hour }, "Adjustment.Until"},
		{"a raise of a policy that is not raisable", func(a *core.Adjustment) {
			a.Raise, a.Until, a.Policy = 1, hour, newPolicy(t, core.PolicyConfig{Name: "quota", Algorithm: frozen(10)})
		}, "Raisable"},
		{"no policy", func(a *core.Adjustment) { a.Policy = nil }, "Adjustment.Policy"},
		{"no key", func(a *core.Adjustment) { a.Key = core.Key{} }, "Adjustment.Key"},
		{"a rate", func(a *core.Adjustment) { a.Policy = limited(t, "rate", core.PerSecond(1)) }, "is no quota"},
		{"a window from the first charge", func(a *core.Adjustment) {
			a.Limit = core.FixedWindow{Limit: 1, Window: time.Hour, FromFirst: true}
		}, "is no quota"},
		{"no limit", func(a *core.Adjustment) { a.Limit = core.Unlimited{} }, "is no quota"},
	}
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				a := core.Adjustment{ID: "a", Policy: raisable, Key: newKey(t, "k"), Units: 1}
				test.change(&a)
				done, err := g.Adjust(t.Context(), a)
				if done || !errors.Is(err, core.ErrCharge) && !errors.Is(err, core.ErrKey) || !strings.Contains(err.Error(), test.names) {
					t.Errorf("%t, %v", done, err)
				}
			})
		}
		t.Run("RaiseUsed", func(t *testing.T) {
			c := core.Charge{Policy: raisable, Key: newKey(t, "k")}
			for _, figure := range []int64{-1, 1_000_000_000_000_001} {
				_, err := g.RaiseUsed(t.Context(), c, figure, time.Time{})
				if !errors.Is(err, core.ErrCharge) {
					t.Error(figure, err)
				}
			}
		})
		wantUsed(t, g, raisable, newKey(t, "k"), 0)
	})
}

func TestRaisesStayBelowTheLargestNumber(t *testing.T) {
	t.Parallel()
	eachQuota(t, func(t *testing.T, g *core.Gate, c *core.ManualClock, p *core.Policy, _ time.Duration) {
		const most = 1_000_000_000_000_000
		a := core.Adjustment{
			ID: "a", Policy: p, Key: newKey(t, "k", t.Name()), Units: most, Raise: most, Until: c.Now().Add(time.Hour),
		}
		adjust(t, g, a)
		a.ID = "b"
		gatetest.Is(t, gatetest.Err(g.Adjust(t.Context(), a)), core.ErrCharge, "got")
		d := decide(t, g, core.Charge{Policy: p, Key: a.Key, Cost: 10})
		if r := d.At(0); !d.Allowed || r.Used != most+10 || r.Limit != most+10 {
			t.Error(show(d))
		}
		denies(t, g, core.Charge{Policy: p, Key: a.Key, Cost: math.MaxInt64})
		for _, p := range quotasOfTen { // a policy without Raisable heeds no raise
			plain := limited(t, "quota", p.algorithm)
			if d := peek(t, g, core.Charge{Policy: plain, Key: a.Key, Cost: core.NoCost}); d.At(0).Limit != 10 {
				t.Error(show(d))
			}
		}
	})
}

func TestCalendarPeriod(t *testing.T) {
	month := core.Calendar{Limit: 1, Every: core.PeriodMonth, In: lordHowe, Anchor: time.Date(2025, 1, 31, 12, 0, 0, 0, lordHowe)}
	p, err := month.Period(time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC))
	if want := time.Date(2026, 2, 28, 12, 0, 0, 0, lordHowe); err != nil || !p.Until.Equal(want) || p.From.Day() != 31 {
		t.Errorf("%v, %v", p, err)
	}
	if _, err := (core.Calendar{Limit: 1, Every: core.PeriodMonth}).Period(time.Now()); err == nil || !strings.Contains(err.Error(), "Calendar.In") {
		t.Error(err)
	}
}

// What is given back is bounded by what is used alone, which raises and debts bring above the limit.
func TestGiveReturnsAllThatIsUsed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		limit core.Algorithm
		raise int64
		debt  bool
	}{
		{"raised calendar", core.Calendar{Limit: 100, Every: core.PeriodYear, In: time.UTC}, 100, false},
		{"raised window", core.FixedWindow{Limit: 100, Window: 24 * time.Hour}, 100, false},
		{"raised bucket", frozen(100), 100, false},
		{"indebted calendar", core.Calendar{Limit: 100, Every: core.PeriodYear, In: time.UTC}, 0, true},
		{"indebted window", core.FixedWindow{Limit: 100, Window: 24 * time.Hour, FromFirst: true}, 0, true},
		{"indebted bucket", core.PerHour(100), 0, true},
		{"indebted bucket without refill", frozen(100), 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
				p := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: tt.limit, Raisable: tt.raise > 0})
				asked := core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 100}
				if tt.raise > 0 {
					raiseBy(t, g, asked, tt.raise, c.Now().Add(time.Hour))
				}
				if tt.debt {
					settle(t, charge(t, g, asked), 200)
				} else {
					decide(t, g, asked)
					decide(t, g, asked)
				}
				asked.Cost = core.NoCost
				for i, used := range []int64{50, 0} {
					given, err := inside.Give(t.Context(), g, asked, 150)
					if d := peek(t, g, asked); err != nil || given != 150-int64(i)*100 || d.At(0).Used != used {
						t.Errorf("gave %d, %v: %s", given, err, show(d))
					}
				}
			})
		})
	}
}

// Only Adjust knows up to which debt a quota may be charged.
func TestGiveChargesNoQuota(t *testing.T) {
	t.Parallel()
	g := memoryGate(t, core.Config{})
	for _, tt := range []struct {
		name    string
		limit   core.Algorithm
		charged int64
		err     error
	}{
		{"bucket", core.PerHour(100), -150, nil},
		{"quota", frozen(100), 0, core.ErrCharge},
	} {
		asked := core.Charge{Policy: limited(t, tt.name, tt.limit), Key: newKey(t, "k"), Cost: core.NoCost}
		if given, err := inside.Give(t.Context(), g, asked, -150); given != tt.charged || !errors.Is(err, tt.err) {
			t.Errorf("%s: %d, %v", tt.name, given, err)
		}
	}
}

// SpendUpTo, and a merged and clamped cost, are bounded by the limit with its raises, and a debt is not.
func TestBoundsHeedRaises(t *testing.T) {
	t.Parallel()
	eachQuota(t, func(t *testing.T, g *core.Gate, c *core.ManualClock, p *core.Policy, _ time.Duration) {
		raised := func(key string, cost int64) core.Charge {
			ch := core.Charge{Policy: p, Key: newKey(t, key), Cost: cost}
			raiseBy(t, g, ch, 90, c.Now().Add(time.Hour))
			return ch
		}
		one := raised("one", 1)
		n, d, err := g.SpendUpTo(t.Context(), 500, one)
		if err != nil || n != 100 || d.At(0).Used != 100 {
			t.Errorf("SpendUpTo: %d, %v: %s", n, err, show(d))
		}
		clamped := raised("clamped", 50)
		clamped.Clamp = true
		n, d, err = g.SpendUpTo(t.Context(), 500, clamped)
		if err != nil || n != 2 || d.At(0).Used != 100 {
			t.Errorf("SpendUpTo of a clamped cost: %d, %v: %s", n, err, show(d))
		}
		merged := raised("merged", 70)
		merged.Clamp = true
		if d := decide(t, g, merged, merged); !d.Allowed || d.At(0).Used != 100 {
			t.Errorf("merged: %s", show(d))
		}
		merged.Cost, merged.Key = 500, newKey(t, "no raise")
		if d := decide(t, g, merged, merged); !d.Allowed || d.At(0).Used != 10 {
			t.Errorf("merged without a raise: %s", show(d))
		}
		large := raised("large", 500)
		large.Clamp = true
		if d := decide(t, g, large); !d.Allowed || d.At(0).Used != 100 {
			t.Errorf("clamped: %s", show(d))
		}
		denies(t, g, large)
		debt := raised("debt", 50)
		settle(t, charge(t, g, debt), 170)
		if d := peek(t, g, debt); d.At(0).Used != 170 {
			t.Errorf("debt: %s", show(d))
		}
	})
}

// Where Redis does not tell the raise of a limit to which a cost is clamped, the policy's failure mode
// decides. The next decision asks again.
func TestClampWithoutTheRaise(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		c := newClock()
		var fails atomic.Bool // the next script
		client := s.Client(t)
		client.AddHook(onScripts(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			if fails.CompareAndSwap(true, false) {
				return fail(cmds, errors.New("LOADING Redis is loading the dataset in memory"))
			}
			return send()
		}))
		g := redisGate(t, client, core.Config{Prefix: s.Prefix})
		g.InjectClock(micros(c))
		p := newPolicy(t, core.PolicyConfig{
			Name: "p", Algorithm: frozen(100), Raisable: true, OnFailure: core.FailClosed,
		})
		charge := core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 500, Clamp: true}
		gatetest.Must(g.Adjust(t.Context(), core.Adjustment{
			ID: "top-up", Policy: p, Key: charge.Key, Raise: 900, Until: c.Now().Add(time.Hour),
		}))(t)
		fails.Store(true)
		d, err := g.Decide(t.Context(), charge)
		if err != nil || d.Allowed || d.Source != core.SourceClosed || d.Cause == nil || d.RetryAfter() != time.Second {
			t.Errorf("%v, by %v: %s", err, d.Source, show(d))
		}
		if d := decide(t, g, charge); !d.Allowed || d.At(0).Used != 500 {
			t.Errorf("asked again: %s", show(d))
		}
	})
}

// A decision learns all raises that it needs in one more round trip, and both end by the same deadline.
func TestClampsShareOneLookUp(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		var deadlines []time.Time
		client := s.Client(t)
		client.AddHook(onScripts(func(ctx context.Context, _ []redis.Cmder, send func() error) error {
			end, _ := ctx.Deadline()
			deadlines = append(deadlines, end)
			return send()
		}))
		g := redisGate(t, client, core.Config{Prefix: s.Prefix})
		charges := make([]core.Charge, 4)
		for i := range charges {
			p := newPolicy(t, core.PolicyConfig{Name: fmt.Sprint("p", i), Algorithm: frozen(100), Raisable: true})
			charges[i] = core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 500, Clamp: true}
			raiseBy(t, g, charges[i], int64(i+1), time.Now().Add(time.Hour))
		}
		deadlines = nil
		d := decide(t, g, charges...)
		for i, r := range d.Results() {
			if !r.Allowed || r.Used != int64(101+i) {
				t.Errorf("charge %d: %s", i, show(d))
			}
		}
		if len(deadlines) != 2 || deadlines[0] != deadlines[1] {
			t.Errorf("the round trips end by %v", deadlines)
		}
	})
}

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
			gatetest.Equal(t, used(t, g, p, one.Key), 0, "%s: the next day begins with", p.Name())
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
				gatetest.Equal(t, used(t, g, p, one.Key), tt.owed, "%s, %s: the next day begins with", p.Name(), tt.name)
			}
		}
	})
}

// A hold that ended in a window whose debt would have been paid by now without it leaves nothing.
func TestExpiredHoldEndsAnOldDebt(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		const width = 10 * 24 * time.Hour // beyond the margin of a key on a test's clock
		p := newPolicy(t, core.PolicyConfig{
			Name: "p", Algorithm: core.FixedWindow{Limit: 10, Window: width}, Hold: time.Minute,
		})
		one := core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 1}
		c.Set(time.UnixMicro(epoch - epoch%width.Microseconds()))
		charge(t, g, core.Charge{Policy: p, Key: one.Key, Cost: 9}).Abandon()
		settle(t, charge(t, g, one), 16)
		c.Advance(2*width + width/2)
		admits(t, g, one)
		gatetest.Equal(t, used(t, g, p, one.Key), 1, "used")
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
				if n, d, err := g.SpendUpTo(t.Context(), 0, raised, minute); n != 0 || err != nil || !d.Allowed || d.RetryAfter() != 0 {
					t.Errorf("nothing of it: %d, %v: %s", n, err, show(d))
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

// A cost that is clamped falls with the limit when a raise ends, so that waiting helps. The wait is exact.
func TestClampedCostFallsWithTheRaise(t *testing.T) {
	t.Parallel()
	day := core.FixedWindow{Limit: 100, Window: 24 * time.Hour}
	left := 24*time.Hour - time.Duration(epoch%day.Window.Microseconds())*time.Microsecond
	for _, tt := range []struct {
		name  string
		limit core.Algorithm
		until time.Duration
		used  int64
		also  bool // a minute that is exhausted
		wait  time.Duration
	}{
		{"in this window", day, left - time.Hour, 1, false, left},
		{"at its end", day, left, 1, false, left},
		{"in the next window", day, left + time.Hour, 1, false, left},
		{"in a debt", day, left, 150 + 120, false, left + 2*day.Window},
		{"of an untouched key", day, time.Second, 0, true, 40 * time.Second},
		{"of an untouched grant", frozen(100), time.Second, 0, true, 40 * time.Second},
		{"of a grant", frozen(100), time.Second, 1, false, core.Never},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
				c.Set(time.UnixMicro(epoch))
				if tt.also {
					c.Set(time.UnixMicro(epoch).Truncate(time.Minute).Add(20 * time.Second))
				}
				asked := core.Charge{Key: newKey(t, "k"), Cost: 500, Clamp: true,
					Policy: newPolicy(t, core.PolicyConfig{Name: "quota", Algorithm: tt.limit, Raisable: true})}
				raiseBy(t, g, asked, 50, c.Now().Add(tt.until))
				if tt.used > 0 {
					adjust(t, g, core.Adjustment{ID: "used", Policy: asked.Policy, Key: asked.Key, Units: tt.used})
				}
				charges := []core.Charge{asked}
				if tt.also {
					minute := core.Charge{Key: asked.Key, Policy: limited(t, "minute", core.FixedWindow{Limit: 1, Window: time.Minute})}
					admits(t, g, minute)
					charges = append(charges, minute)
				}
				d := decide(t, g, charges...)
				if d.Allowed || d.RetryAfter() != tt.wait {
					t.Fatalf("%v, want %v: %s", d.RetryAfter(), tt.wait, show(d))
				}
				if tt.wait == core.Never {
					return
				}
				c.Advance(tt.wait - time.Microsecond)
				denies(t, g, charges...)
				c.Advance(time.Microsecond)
				admits(t, g, charges...)
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

// An adjustment that fails is not known, so that it counts when it is sent again.
func TestFailedAdjustmentCountsWhenSentAgain(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client := s.Client(t)
		g := redisGate(t, client, core.Config{Prefix: s.Prefix})
		daily := core.FixedWindow{Limit: 10, Window: 24 * time.Hour}
		p := newPolicy(t, core.PolicyConfig{Name: "quota", Algorithm: daily, Raisable: true})
		key := newKey(t, "k")
		decide(t, g, core.Charge{Policy: p, Key: key, Cost: 4})
		counter := gatetest.Must(client.Keys(t.Context(), s.Prefix+"*:fw*").Result())(t)
		if len(counter) != 1 {
			t.Fatalf("the counter is one of %q", counter)
		}
		value := client.GetDel(t.Context(), counter[0]).Val()
		client.LPush(t.Context(), counter[0], "of another type")
		a := core.Adjustment{ID: "a", Policy: p, Key: key, Units: 5}
		if applied, err := g.Adjust(t.Context(), a); applied || !errors.Is(err, core.ErrMisconfigured) {
			t.Fatalf("applied %t, %v", applied, err)
		}
		client.Del(t.Context(), counter[0])
		client.Set(t.Context(), counter[0], value, time.Hour)
		if !adjust(t, g, a) || used(t, g, p, key) != 9 {
			t.Errorf("%d units are used, want 9", used(t, g, p, key))
		}
	})
}
