package core_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// noon is when the histories of vectors begin: a Friday, 23:00 in daylight saving time on Lord
// Howe.
var noon = time.Date(2025, 11, 21, 12, 0, 0, 0, time.UTC)

// vector is a history of one key in words, with the expected result of each step. The steps stand in a file
// of testdata, below the vector's name.
type vector struct {
	name   string
	limits []core.Algorithm // of the key: the first, until a step uses another
	hold   time.Duration    // of reservations
	at     time.Time        // noon if zero
}

// step moves the clock and then does one of
//
//	decide n, peek n, atmost n, reserve n, reserve n for d,
//	use i, reset, cancel i, settle i n, renew i, and forget and forgive under a Block
//
// where i counts the reservations, or for use the limits, from 0. The result after one of the second
// line is that of a peek of 1, and of 0 after use.
type step struct {
	after    time.Duration
	do, want string
}

// stepsOf reads a file of steps, such as "250ms decide 3 | 5 used, 0 left", by the names of their vectors.
func stepsOf(t *testing.T, file string) map[string][]step {
	t.Helper()
	steps, name := make(map[string][]step), ""
	for line := range strings.Lines(string(gatetest.Must(os.ReadFile("testdata/" + file))(t))) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "== "); ok {
			name = title
		} else if line != "" && !strings.HasPrefix(line, "#") {
			did, want, _ := strings.Cut(line, " | ")
			after, do, _ := strings.Cut(did, " ")
			steps[name] = append(steps[name], step{gatetest.Must(time.ParseDuration(after))(t), do, want})
		}
	}
	return steps
}

func (v *vector) play(t *testing.T, g *core.Gate, c *core.ManualClock, key core.Key, steps []step) {
	t.Helper()
	if len(steps) == 0 {
		t.Fatal("no steps")
	}
	if c.Set(noon); !v.at.IsZero() {
		c.Set(v.at)
	}
	cfg := core.PolicyConfig{Name: "p", Algorithm: v.limits[0], Hold: v.hold}
	if len(v.limits) > 1 {
		cfg.Algorithm = changing(v.limits...)
	}
	policy := newPolicy(t, cfg)
	ctx, plan := t.Context(), 0
	var held []*core.Reservation
	for i, s := range steps {
		c.Advance(s.after)
		var (
			d      core.Decision
			err    error
			prefix string
			word   = strings.Fields(s.do)
			number [2]int64
		)
		for j := range number {
			if j+1 < len(word) {
				if _, err := fmt.Sscan(word[j+1], &number[j]); err != nil && word[0] != "reserve" {
					t.Fatalf("step %d, %s: %v", i, s.do, err)
				}
			}
		}
		charge := under(plan, core.Charge{Policy: policy, Key: key, Cost: units(number[0])})[0]
		switch word[0] {
		case "decide":
			d, err = g.Decide(ctx, charge)
		case "peek":
			d, err = g.Peek(ctx, charge)
		case "atmost":
			var granted int64
			granted, d, err = atMost(g, ctx, charge)
			prefix = fmt.Sprintf("got %d, ", granted)
		case "reserve":
			wait := time.Duration(0)
			if len(word) == 4 {
				if wait, err = time.ParseDuration(word[3]); err != nil {
					t.Fatal(err)
				}
			}
			var r *core.Reservation
			if r, d, err = g.Reserve(ctx, wait, charge); r != nil {
				held = append(held, r)
			}
		default:
			charge.Cost = 1
			switch word[0] {
			case "use":
				plan = int(number[0])
				charge.Cost, charge.Limit = core.NoCost, limitUnder(plan, policy)
			case "reset":
				err = g.Reset(ctx, charge)
			case "renew":
				_, err = held[number[0]].Renew()
			case "forget":
				err = blocklist(t, g, policy).Forget(ctx, key)
			case "forgive":
				err = inside.Forgive(ctx, g, policy, key)
			case "cancel":
				err = held[number[0]].Cancel(ctx)
			case "settle":
				err = held[number[0]].Settle(ctx, number[1])
			default:
				t.Fatalf("step %d: %s", i, s.do)
			}
			if err == nil {
				d, err = g.Peek(ctx, charge)
			}
		}
		if err != nil || d.Cause != nil {
			t.Fatalf("step %d, %s: %v, cause %v", i, s.do, err, d.Cause)
		}
		gatetest.Equal(t, prefix+describe(d.At(0)), s.want, "step %d, %s", i, s.do)
	}
}

// describe omits zero durations.
func describe(r core.Result) string {
	var b strings.Builder
	if !r.Allowed {
		b.WriteString("denied, ")
	}
	fmt.Fprintf(&b, "%d used, %d left", r.Used, r.Remaining)
	if r.Held > 0 {
		fmt.Fprintf(&b, ", %d held", r.Held)
	}
	for _, w := range []struct {
		name string
		wait time.Duration
	}{{"retry", r.RetryAfter}, {"next", r.NextAfter}, {"reset", r.ResetAfter}, {"delay", r.Delay}} {
		if w.wait == core.Never {
			fmt.Fprintf(&b, ", %s never", w.name)
		} else if w.wait != 0 {
			fmt.Fprintf(&b, ", %s %v", w.name, w.wait)
		}
	}
	return b.String()
}

// The same histories have the same results, worked out by hand, in memory and on every Redis.
func TestConformance(t *testing.T) {
	t.Parallel()
	steps := stepsOf(t, "histories.txt")
	maps.Copy(steps, stepsOf(t, "blocks.txt"))
	play := func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		all := slices.Concat(vectors, blockVectors)
		gatetest.Equal(t, len(all), len(steps), "vectors")
		for i, v := range all {
			// The keys have different outermost parts, so that the nodes of a cluster share the
			// vectors.
			t.Run(v.name, func(t *testing.T) { v.play(t, g, c, newKey(t, fmt.Sprintf("v%d", i), "k"), steps[v.name]) })
		}
	}
	eachGate(t, play)
	t.Run("cluster", func(t *testing.T) {
		cluster := redistest.StartCluster(t, 3)
		c := newClock()
		g := redisGate(t, cluster.Client(t), core.Config{Prefix: "conformance", DisableDenialCache: true})
		g.InjectClock(micros(c))
		play(t, g, c)
	})
}

var vectors = []vector{
	{name: "token bucket", limits: []core.Algorithm{core.TokenBucket{Rate: 2, Per: time.Second, Burst: 5}}},
	{name: "token bucket with fractional microseconds",
		limits: []core.Algorithm{core.TokenBucket{Rate: 3, Per: time.Second, Burst: 3}}},
	{name: "token bucket with a lifetime", limits: []core.Algorithm{core.TokenBucket{Burst: 5, Per: time.Hour}}},
	{name: "token bucket without refill", limits: []core.Algorithm{frozen(5)}},
	{name: "leaky bucket", limits: []core.Algorithm{core.LeakyBucket{Rate: 2, Per: time.Second, Capacity: 4}}},
	{name: "fixed window", limits: []core.Algorithm{core.FixedWindow{Limit: 10, Window: time.Minute}}},
	{name: "fixed window from first",
		limits: []core.Algorithm{core.FixedWindow{Limit: 10, Window: time.Minute, FromFirst: true}}},
	{name: "two counters", limits: []core.Algorithm{core.SlidingWindow{Limit: 10, Window: time.Minute}}},
	{name: "buckets", limits: []core.Algorithm{core.SlidingWindow{Limit: 10, Window: time.Minute, Buckets: 6}}},
	{name: "window of one bucket",
		limits: []core.Algorithm{core.SlidingWindow{Limit: 10, Window: time.Minute, Buckets: 1}}},
	{name: "log", limits: []core.Algorithm{core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Minute}}}}},
	{name: "log of three windows", limits: []core.Algorithm{core.SlidingLog{Windows: []core.Window{
		{Limit: 10, Width: time.Minute}, {Limit: 4, Width: time.Second}, {Limit: 12, Width: time.Hour},
	}}}},
	{name: "day on Lord Howe",
		limits: []core.Algorithm{core.Calendar{Limit: 10, Every: core.PeriodDay, In: lordHowe}}},
	{name: "day of 23 hours and a half",
		limits: []core.Algorithm{core.Calendar{Limit: 10, Every: core.PeriodDay, In: lordHowe}},
		at:     time.Date(2026, 10, 3, 13, 30, 0, 0, time.UTC)},
	{name: "billing month from the 31st",
		limits: []core.Algorithm{core.Calendar{Limit: 10, Every: core.PeriodMonth, In: time.UTC, Anchor: time.Date(2025, 1, 31, 12, 0, 0, 0, time.UTC)}},
		at:     time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)},
	{name: "hour in which the clocks go back by half an hour",
		limits: []core.Algorithm{core.Calendar{Limit: 2, Every: core.PeriodHour, In: lordHowe}},
		at:     time.Date(2026, 4, 4, 14, 30, 0, 0, time.UTC)},
	{name: "log whose short window admits less", limits: []core.Algorithm{core.SlidingLog{Windows: []core.Window{
		{Limit: 3, Width: time.Second}, {Limit: 10, Width: time.Hour},
	}}}},
	{name: "any minute", limits: []core.Algorithm{core.AnyMinute(10)}},
	{name: "clock that steps forward and back", limits: []core.Algorithm{core.PerMinute(10)}},
	{name: "clock that steps over the start of a month",
		limits: []core.Algorithm{core.Calendar{Limit: 10, Every: core.PeriodMonth, In: time.UTC}},
		at:     time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)},
	{name: "refund after the time that a bucket takes to refill", limits: []core.Algorithm{core.PerMinute(60)}},
	{name: "refunds of reservations for later leave nothing",
		limits: []core.Algorithm{core.TokenBucket{Rate: 7, Per: 10 * time.Hour, Burst: 10}}},
	{name: "held units", limits: []core.Algorithm{frozen(10)}, hold: time.Minute},
	{name: "late refund, window from first",
		limits: []core.Algorithm{core.FixedWindow{Limit: 3, Window: time.Minute, FromFirst: true}}},
	{name: "late refund, buckets",
		limits: []core.Algorithm{core.SlidingWindow{Limit: 3, Window: time.Minute, Buckets: 6}}},
	{name: "late refund, log",
		limits: []core.Algorithm{core.SlidingLog{Windows: []core.Window{{Limit: 3, Width: time.Minute}}}}},
	{name: "unlimited", limits: []core.Algorithm{core.Unlimited{}}},
	{name: "deny all", limits: []core.Algorithm{core.DenyAll{}}},
}
