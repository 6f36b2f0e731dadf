package core_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
)

func monthOf(limit int64) core.Algorithm {
	return core.Calendar{Limit: limit, Every: core.PeriodMonth, In: time.UTC}
}

// A denial that what is held causes tells a short wait. One that it does not cause tells the true
// wait.
func TestHeldUnitsAreNoNever(t *testing.T) {
	t.Parallel()
	const short = 3 * time.Second // nothing was settled yet
	hourly := core.TokenBucket{Rate: 2000, Per: 1000 * time.Hour, Burst: 2000}
	for name, test := range map[string]struct {
		limit             core.Algorithm
		hold              time.Duration
		spent, held, cost int64
		short             bool
	}{
		"a month, held":               {monthOf(2000), time.Minute, 0, 1500, 600, true},
		"a bucket, held":              {hourly, time.Minute, 500, 1500, 1000, true},
		"a bucket, spent":             {hourly, time.Minute, 1900, 100, 1000, false},
		"a log, held":                 {core.SlidingLog{Windows: []core.Window{{Limit: 2000, Width: 24 * time.Hour}}}, time.Minute, 500, 1500, 1000, true},
		"a shorter Hold":              {monthOf(2000), 2 * time.Second, 0, 2000, 1, true},
		"a true wait that is shorter": {core.PerSecond(10), time.Minute, 0, 10, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
				p := newPolicy(t, core.PolicyConfig{Name: "budget", Algorithm: test.limit, Hold: test.hold})
				key := newKey(t, "acme")
				c := func(n int64) core.Charge { return core.Charge{Policy: p, Key: key, Cost: n} }
				if test.spent > 0 {
					decide(t, g, c(test.spent))
				}
				if test.held > 0 {
					r := charge(t, g, c(test.held))
					defer runtime.KeepAlive(r)
				}
				d := decide(t, g, c(test.cost))
				r := d.At(0)
				if d.Allowed || r.Held != test.held || r.Used != test.spent+test.held {
					t.Fatal(show(d))
				}
				if !test.short {
					if r.KeptAfter() != 0 || r.RetryAfter > 0 && r.RetryAfter == min(short, test.hold) {
						t.Error(show(d))
					}
					return
				}
				if r.RetryAfter != min(short, test.hold) || d.RetryAfter() != r.RetryAfter || r.KeptAfter() <= short {
					t.Error(show(d))
				}
			})
		})
	}
}

// The wait is as long as reservations were held lately, at most 30 s and the Hold.
func TestWaitForHeldUnitsIsLearnt(t *testing.T) {
	for _, test := range []struct {
		hold, lasts, want time.Duration
	}{
		{time.Minute, 10 * time.Second, 10 * time.Second},
		{time.Minute, 10 * time.Millisecond, time.Second},
		{time.Minute, time.Hour, 30 * time.Second},
		{5 * time.Second, time.Hour, 5 * time.Second},
	} {
		t.Run(fmt.Sprint(test.lasts, " of ", test.hold), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := memoryGate(t, core.Config{})
				p := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: frozen(10), Hold: test.hold})
				key := newKey(t, "k")
				for range 50 {
					r := charge(t, g, core.Charge{Policy: p, Key: key, Cost: 9})
					time.Sleep(test.lasts)
					settle(t, r, 0)
				}
				r := charge(t, g, core.Charge{Policy: p, Key: key, Cost: 9})
				d := decide(t, g, core.Charge{Policy: p, Key: key, Cost: 2})
				if d.RetryAfter() != test.want || d.At(0).KeptAfter() != core.Never {
					t.Error(show(d))
				}
				settle(t, r, 0)
			})
		})
	}
}

// Limiter.Wait waits for what is held, although it never comes back by itself.
func TestLimiterWaitsForHeldUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memoryGate(t, core.Config{})
		p, key := heldFor(t, time.Minute), newKey(t, "k")
		l := gatetest.Must(core.NewLimiter(g, p))(t)
		r := charge(t, g, core.Charge{Policy: p, Key: key, Cost: 10})
		start := time.Now()
		time.AfterFunc(10*time.Second, func() { settle(t, r, 9) })
		if d, err := l.Wait(t.Context(), key); err != nil || time.Since(start) < 10*time.Second {
			t.Errorf("after %v: %s, %v", time.Since(start), show(d), err)
		}
		if d, err := l.Wait(t.Context(), key); err == nil {
			t.Errorf("what is spent was waited for: %s", show(d))
		}
	})
}

// A denial tells a short wait exactly if the charge fits once everything that runs is cancelled.
func TestDenialKnowsWhatCancelsWouldGiveBack(t *testing.T) {
	limits := []core.Algorithm{
		frozen(20), monthOf(20), core.FixedWindow{Limit: 20, Window: time.Hour},
		core.FixedWindow{Limit: 20, Window: time.Hour, FromFirst: true},
	}
	rapid.Check(t, func(t *rapid.T) {
		c := newClock()
		g := gatetest.Must(core.NewMemory(core.Config{Clock: c.Now}))(t)
		defer g.Close(t.Context())
		p, err := core.NewPolicy(core.PolicyConfig{
			Name: "p", Algorithm: rapid.SampledFrom(limits).Draw(t, "limit"), Hold: 90 * time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		key, err := core.NewKey("k")
		if err != nil {
			t.Fatal(err)
		}
		charge := func(name string) core.Charge {
			return core.Charge{Policy: p, Key: key, Cost: rapid.Int64Range(1, 21).Draw(t, name)}
		}
		var running []*core.Reservation
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch at := len(running) - 1; rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				_, err = g.Decide(t.Context(), charge("spent"))
			case 1, 2:
				var r *core.Reservation
				if r, _, err = g.Charge(t.Context(), charge("held")); r != nil {
					running = append(running, r)
				}
			case 3:
				if at >= 0 {
					at = rapid.IntRange(0, at).Draw(t, "which")
					err = running[at].Settle(t.Context(), rapid.Int64Range(0, 25).Draw(t, "used"))
					running = slices.Delete(running, at, at+1)
				}
			case 4:
				c.Advance(time.Duration(rapid.IntRange(0, 70).Draw(t, "minutes")) * time.Minute)
			case 5:
				for _, r := range running {
					_, _ = r.Renew()
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		asked := charge("asked")
		d := gatetest.Must(g.Peek(t.Context(), asked))(t)
		if d.Allowed {
			return
		}
		for _, r := range running {
			noError(t, r.Cancel(t.Context()))
		}
		after := gatetest.Must(g.Peek(t.Context(), asked))(t)
		if after.Allowed != (d.At(0).KeptAfter() > 0) || after.At(0).Held != 0 {
			t.Fatalf("before %s\nafter %s", show(d), show(after))
		}
	})
}
