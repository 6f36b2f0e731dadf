package core_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// noon is when the histories of vectors begin: a Friday, 23:00 in daylight saving time on Lord
// Howe.
var noon = time.Date(2025, 11, 21, 12, 0, 0, 0, time.UTC)

// vector is a history of one key in words, with the expected result of each step.
type vector struct {
	name   string
	limits []core.Algorithm // of the key: the first, until a step uses another
	hold   time.Duration    // of reservations
	at     time.Time        // noon if zero
	steps  []step
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

func (v *vector) play(t *testing.T, g *core.Gate, c *core.ManualClock, key core.Key) {
	t.Helper()
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
	for i, s := range v.steps {
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
				err = forgive(ctx, g, policy, key)
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
		if got := prefix + describe(d.At(0)); got != s.want {
			t.Errorf("step %d, %s:\n got %s\nwant %s", i, s.do, got, s.want)
		}
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
	play := func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for i, v := range slices.Concat(vectors, blockVectors) {
			// The keys have different outermost parts, so that the nodes of a cluster share the
			// vectors.
			t.Run(v.name, func(t *testing.T) { v.play(t, g, c, newKey(t, fmt.Sprintf("v%d", i), "k")) })
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
	{
		name:   "token bucket",
		limits: []core.Algorithm{core.TokenBucket{Rate: 2, Per: time.Second, Burst: 5}},
		steps: []step{
			{0, "decide 3", "3 used, 2 left, next 500ms, reset 1.5s"},
			{250 * time.Millisecond, "decide 3", "denied, 3 used, 2 left, retry 250ms, next 250ms, reset 1.25s"},
			{250 * time.Millisecond, "decide 3", "5 used, 0 left, next 500ms, reset 2.5s"},
			{0, "peek 6", "denied, 5 used, 0 left, retry never, next 500ms, reset 2.5s"},
			{time.Second, "atmost 9", "got 2, 5 used, 0 left, next 500ms, reset 2.5s"},
			{0, "atmost 9", "got 0, denied, 5 used, 0 left, retry 500ms, next 500ms, reset 2.5s"},
			{0, "reserve 2 for 999999us", "denied, 5 used, 0 left, retry 1µs, next 500ms, reset 2.5s"},
			{0, "reserve 2 for 1s", "7 used, 0 left, next 1.5s, reset 3.5s, delay 1s"},
			{0, "reserve 1 for 2s", "8 used, 0 left, next 2s, reset 4s, delay 1.5s"},
			{0, "reserve 6 for 1h", "denied, 8 used, 0 left, retry never, next 2s, reset 4s"},
			{0, "cancel 0", "denied, 6 used, 0 left, retry 1s, next 1s, reset 3s"},
			{0, "cancel 1", "denied, 5 used, 0 left, retry 500ms, next 500ms, reset 2.5s"},
			{0, "cancel 1", "denied, 5 used, 0 left, retry 500ms, next 500ms, reset 2.5s"},
			{0, "reset", "0 used, 5 left"},
			{0, "reserve 2", "2 used, 3 left, next 500ms, reset 1s"},
			{0, "settle 2 4", "4 used, 1 left, next 500ms, reset 2s"},
			{0, "reserve 1", "5 used, 0 left, next 500ms, reset 2.5s"},
			{0, "settle 3 8", "denied, 12 used, 0 left, retry 4s, next 4s, reset 6s"},
			{4 * time.Second, "decide 1", "5 used, 0 left, next 500ms, reset 2.5s"},
		},
	},
	{
		name:   "token bucket with fractional microseconds",
		limits: []core.Algorithm{core.TokenBucket{Rate: 3, Per: time.Second, Burst: 3}},
		steps: []step{
			{0, "decide 1", "1 used, 2 left, next 333.334ms, reset 333.334ms"},
			{0, "decide 1", "2 used, 1 left, next 333.334ms, reset 666.667ms"},
			{0, "decide 2", "denied, 2 used, 1 left, retry 333.334ms, next 333.334ms, reset 666.667ms"},
			{333_333 * time.Microsecond, "decide 2", "denied, 2 used, 1 left, retry 1µs, next 1µs, reset 333.334ms"},
			{time.Microsecond, "decide 2", "3 used, 0 left, next 333.333ms, reset 1s"},
			{0, "reset", "0 used, 3 left"},
			{0, "decide 3", "3 used, 0 left, next 333.334ms, reset 1s"},
			{0, "reserve 1 for 333333us", "denied, 3 used, 0 left, retry 1µs, next 333.334ms, reset 1s"},
			{0, "reserve 1 for 333334us", "4 used, 0 left, next 666.667ms, reset 1.333334s, delay 333.334ms"},
			{0, "cancel 0", "denied, 3 used, 0 left, retry 333.334ms, next 333.334ms, reset 1s"},
		},
	},
	{
		name:   "token bucket with a lifetime",
		limits: []core.Algorithm{core.TokenBucket{Burst: 5, Per: time.Hour}},
		steps: []step{
			{0, "decide 3", "3 used, 2 left, next never, reset never"},
			// A denial prolongs nothing.
			{time.Hour - time.Microsecond, "decide 3", "denied, 3 used, 2 left, retry never, next never, reset never"},
			{time.Microsecond, "decide 3", "3 used, 2 left, next never, reset never"},
			{time.Hour - time.Microsecond, "decide 1", "4 used, 1 left, next never, reset never"},
			{time.Hour - time.Microsecond, "decide 1", "5 used, 0 left, next never, reset never"},
			{time.Hour, "reserve 2 for 0s", "2 used, 3 left, next never, reset never"},
			{time.Hour, "reserve 1 for 0s", "1 used, 4 left, next never, reset never"},
			// What is forgotten gives nothing back.
			{0, "cancel 0", "1 used, 4 left, next never, reset never"},
			{0, "cancel 1", "0 used, 5 left"},
		},
	},
	{
		name:   "token bucket without refill",
		limits: []core.Algorithm{frozen(5)},
		steps: []step{
			{0, "decide 3", "3 used, 2 left, next never, reset never"},
			{100 * time.Hour, "decide 3", "denied, 3 used, 2 left, retry never, next never, reset never"},
			{0, "reserve 3 for 1h", "denied, 3 used, 2 left, retry never, next never, reset never"},
			{0, "reserve 2 for 1h", "5 used, 0 left, next never, reset never"},
			{time.Hour, "cancel 0", "3 used, 2 left, next never, reset never"},
			{0, "reset", "0 used, 5 left"},
		},
	},
	{
		name:   "leaky bucket",
		limits: []core.Algorithm{core.LeakyBucket{Rate: 2, Per: time.Second, Capacity: 4}},
		steps: []step{
			{0, "reserve 2", "2 used, 2 left, next 500ms, reset 1s"},
			{0, "reserve 1 for 999999us", "denied, 2 used, 2 left, retry 1µs, next 500ms, reset 1s"},
			{0, "reserve 1 for 1s", "3 used, 1 left, next 500ms, reset 1.5s, delay 1s"},
			{0, "reserve 2 for 10s", "denied, 3 used, 1 left, retry 500ms, next 500ms, reset 1.5s"},
			{0, "reserve 1 for 10s", "4 used, 0 left, next 500ms, reset 2s, delay 1.5s"},
			{0, "cancel 1", "3 used, 1 left, next 500ms, reset 1.5s"},
			{0, "cancel 2", "2 used, 2 left, next 500ms, reset 1s"},
			{time.Second, "decide 3", "3 used, 1 left, next 500ms, reset 1.5s"},
			{time.Second, "peek 4", "denied, 1 used, 3 left, retry 500ms, next 500ms, reset 500ms"},
			{0, "atmost 9", "got 3, 4 used, 0 left, next 500ms, reset 2s"},
			// A cost of 0 spends nothing, so it waits for nothing.
			{0, "reserve 0", "4 used, 0 left, next 500ms, reset 2s"},
			{0, "reserve 0 for 1h", "4 used, 0 left, next 500ms, reset 2s"},
			{2 * time.Second, "reserve 4", "4 used, 0 left, next 500ms, reset 2s"},
			{0, "settle 5 9", "denied, 9 used, 0 left, retry 3s, next 3s, reset 4.5s"},
			{3 * time.Second, "decide 1", "4 used, 0 left, next 500ms, reset 2s"},
		},
	},
	{
		name:   "fixed window",
		limits: []core.Algorithm{core.FixedWindow{Limit: 10, Window: time.Minute}},
		steps: []step{
			{20 * time.Second, "decide 4", "4 used, 6 left, next 40s, reset 40s"},
			{0, "decide 7", "denied, 4 used, 6 left, retry 40s, next 40s, reset 40s"},
			{0, "peek 11", "denied, 4 used, 6 left, retry never, next 40s, reset 40s"},
			{0, "atmost 9", "got 6, 10 used, 0 left, next 40s, reset 40s"},
			{40*time.Second - time.Microsecond, "peek 1", "denied, 10 used, 0 left, retry 1µs, next 1µs, reset 1µs"},
			{time.Microsecond, "decide 1", "1 used, 9 left, next 1m0s, reset 1m0s"},
			{0, "reserve 3 for 1h", "4 used, 6 left, next 1m0s, reset 1m0s"},
			{0, "settle 0 1", "2 used, 8 left, next 1m0s, reset 1m0s"},
			{0, "reserve 8", "10 used, 0 left, next 1m0s, reset 1m0s"},
			{0, "settle 1 13", "denied, 15 used, 0 left, retry 1m0s, next 1m0s, reset 2m0s"},
			{0, "peek 6", "denied, 15 used, 0 left, retry 2m0s, next 1m0s, reset 2m0s"},
			{time.Minute, "decide 5", "10 used, 0 left, next 1m0s, reset 1m0s"},
			{0, "reserve 1 for 1h", "denied, 10 used, 0 left, retry 1m0s, next 1m0s, reset 1m0s"},
			{30 * time.Second, "cancel 0", "denied, 10 used, 0 left, retry 30s, next 30s, reset 30s"},
			{30 * time.Second, "reserve 3", "3 used, 7 left, next 1m0s, reset 1m0s"},
			{time.Minute, "decide 4", "4 used, 6 left, next 1m0s, reset 1m0s"},
			{0, "cancel 2", "4 used, 6 left, next 1m0s, reset 1m0s"},
			{0, "reset", "0 used, 10 left"},
		},
	},
	{
		name:   "fixed window from first",
		limits: []core.Algorithm{core.FixedWindow{Limit: 10, Window: time.Minute, FromFirst: true}},
		steps: []step{
			{20 * time.Second, "decide 4", "4 used, 6 left, next 1m0s, reset 1m0s"},
			{time.Minute - time.Microsecond, "decide 7", "denied, 4 used, 6 left, retry 1µs, next 1µs, reset 1µs"},
			{time.Microsecond, "decide 7", "7 used, 3 left, next 1m0s, reset 1m0s"},
			{90 * time.Second, "reserve 1", "1 used, 9 left, next 1m0s, reset 1m0s"},
			{0, "reserve 9", "10 used, 0 left, next 1m0s, reset 1m0s"},
			{0, "settle 1 12", "denied, 13 used, 0 left, retry 1m0s, next 1m0s, reset 2m0s"},
			{0, "cancel 0", "denied, 12 used, 0 left, retry 1m0s, next 1m0s, reset 2m0s"},
			{90 * time.Second, "decide 7", "9 used, 1 left, next 30s, reset 30s"},
			{30 * time.Second, "peek 1", "0 used, 10 left"},
		},
	},
	{
		name:   "two counters",
		limits: []core.Algorithm{core.SlidingWindow{Limit: 10, Window: time.Minute}},
		steps: []step{
			{0, "decide 6", "6 used, 4 left, next 1m10s, reset 2m0s"},
			{80 * time.Second, "decide 5", "9 used, 1 left, next 10s, reset 1m40s"},
			{0, "decide 2", "denied, 9 used, 1 left, retry 10s, next 10s, reset 1m40s"},
			{10*time.Second - time.Microsecond, "peek 2", "denied, 9 used, 1 left, retry 1µs, next 1µs, reset 1m30.000001s"},
			{time.Microsecond, "decide 2", "10 used, 0 left, next 10s, reset 1m30s"},
			{0, "peek 11", "denied, 10 used, 0 left, retry never, next 10s, reset 1m30s"},
			{0, "reset", "0 used, 10 left"},
			{0, "reserve 4", "4 used, 6 left, next 1m15s, reset 2m0s"},
			{90 * time.Second, "decide 3", "5 used, 5 left, next 15s, reset 1m30s"},
			{0, "cancel 0", "3 used, 7 left, next 50s, reset 1m30s"},
			{0, "atmost 20", "got 7, 10 used, 0 left, next 36s, reset 1m30s"},
			{10 * time.Minute, "reserve 10", "10 used, 0 left, next 1m6s, reset 2m0s"},
			{0, "settle 1 15", "denied, 15 used, 0 left, retry 1m24s, next 1m24s, reset 2m0s"},
			{84 * time.Second, "decide 1", "10 used, 0 left, next 4s, reset 1m36s"},
			{0, "reset", "0 used, 10 left"},
			{0, "reserve 4", "4 used, 6 left, next 1m15s, reset 2m0s"},
			{time.Minute, "decide 3", "7 used, 3 left, next 15s, reset 2m0s"},
			{time.Minute, "decide 2", "5 used, 5 left, next 20s, reset 2m0s"},
			{0, "cancel 2", "5 used, 5 left, next 20s, reset 2m0s"},
		},
	},
	{
		name:   "buckets",
		limits: []core.Algorithm{core.SlidingWindow{Limit: 10, Window: time.Minute, Buckets: 6}},
		steps: []step{
			{4 * time.Second, "decide 4", "4 used, 6 left, next 1m6s, reset 1m6s"},
			{10 * time.Second, "decide 6", "10 used, 0 left, next 56s, reset 1m6s"},
			{0, "decide 5", "denied, 10 used, 0 left, retry 1m6s, next 56s, reset 1m6s"},
			{56*time.Second - time.Microsecond, "peek 1", "denied, 10 used, 0 left, retry 1µs, next 1µs, reset 10.000001s"},
			{time.Microsecond, "reserve 4 for 1h", "10 used, 0 left, next 10s, reset 1m10s"},
			{0, "settle 0 1", "7 used, 3 left, next 10s, reset 1m10s"},
			{0, "reserve 2", "9 used, 1 left, next 10s, reset 1m10s"},
			{10 * time.Second, "settle 1 5", "6 used, 4 left, next 1m0s, reset 1m10s"},
			{0, "atmost 7", "got 4, 10 used, 0 left, next 1m0s, reset 1m10s"},
		},
	},
	{
		name:   "window of one bucket",
		limits: []core.Algorithm{core.SlidingWindow{Limit: 10, Window: time.Minute, Buckets: 1}},
		steps: []step{
			{30 * time.Second, "decide 10", "10 used, 0 left, next 1m30s, reset 1m30s"},
			{90*time.Second - time.Microsecond, "decide 1", "denied, 10 used, 0 left, retry 1µs, next 1µs, reset 1µs"},
			{time.Microsecond, "decide 1", "1 used, 9 left, next 2m0s, reset 2m0s"},
		},
	},
	{
		name:   "log",
		limits: []core.Algorithm{core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Minute}}}},
		steps: []step{
			{0, "decide 4", "4 used, 6 left, next 1m0s, reset 1m0s"},
			{10 * time.Second, "decide 6", "10 used, 0 left, next 50s, reset 1m0s"},
			{0, "decide 5", "denied, 10 used, 0 left, retry 1m0s, next 50s, reset 1m0s"},
			{0, "decide 11", "denied, 10 used, 0 left, retry never, next 50s, reset 1m0s"},
			{50 * time.Second, "decide 4", "10 used, 0 left, next 10s, reset 1m0s"},
			{10 * time.Second, "reserve 3 for 1h", "7 used, 3 left, next 50s, reset 1m0s"},
			{0, "settle 0 1", "5 used, 5 left, next 50s, reset 1m0s"},
			{0, "reserve 5", "10 used, 0 left, next 50s, reset 1m0s"},
			{0, "settle 1 9", "denied, 14 used, 0 left, retry 1m0s, next 1m0s, reset 1m0s"},
			{time.Minute, "reserve 2", "2 used, 8 left, next 1m0s, reset 1m0s"},
			{0, "cancel 2", "0 used, 10 left"},
		},
	},
	{
		name: "log of three windows",
		limits: []core.Algorithm{core.SlidingLog{Windows: []core.Window{
			{Limit: 10, Width: time.Minute}, {Limit: 4, Width: time.Second}, {Limit: 12, Width: time.Hour},
		}}},
		steps: []step{
			{0, "decide 4", "4 used, 0 left, next 1s, reset 1h0m0s"},
			{0, "decide 1", "denied, 4 used, 0 left, retry 1s, next 1s, reset 1h0m0s"},
			{time.Second, "decide 4", "8 used, 0 left, next 1s, reset 1h0m0s"},
			{time.Second, "atmost 4", "got 2, 10 used, 0 left, next 58s, reset 1h0m0s"},
			{58 * time.Second, "decide 4", "denied, 10 used, 2 left, retry 59m0s, next 59m0s, reset 59m2s"},
			{0, "decide 2", "12 used, 0 left, next 59m0s, reset 1h0m0s"},
			{59*time.Minute - time.Microsecond, "decide 1", "denied, 12 used, 0 left, retry 1µs, next 1µs, reset 1m0.000001s"},
			{time.Microsecond, "decide 4", "12 used, 0 left, next 1s, reset 1h0m0s"},
		},
	},
	{
		name:   "day on Lord Howe",
		limits: []core.Algorithm{core.Calendar{Limit: 10, Every: core.PeriodDay, In: lordHowe}},
		steps: []step{
			{0, "decide 4", "4 used, 6 left, next 1h0m0s, reset 1h0m0s"},
			{0, "decide 7", "denied, 4 used, 6 left, retry 1h0m0s, next 1h0m0s, reset 1h0m0s"},
			{time.Hour - time.Microsecond, "decide 7", "denied, 4 used, 6 left, retry 1µs, next 1µs, reset 1µs"},
			{time.Microsecond, "reserve 7", "7 used, 3 left, next 24h0m0s, reset 24h0m0s"},
			{0, "settle 0 15", "denied, 15 used, 0 left, retry 24h0m0s, next 24h0m0s, reset 48h0m0s"},
			{24 * time.Hour, "reserve 5", "10 used, 0 left, next 24h0m0s, reset 24h0m0s"},
			{24 * time.Hour, "cancel 1", "0 used, 10 left"},
		},
	},
	{
		name:   "day of 23 hours and a half",
		limits: []core.Algorithm{core.Calendar{Limit: 10, Every: core.PeriodDay, In: lordHowe}},
		at:     time.Date(2026, 10, 3, 13, 30, 0, 0, time.UTC),
		steps: []step{
			{0, "atmost 20", "got 10, 10 used, 0 left, next 23h30m0s, reset 23h30m0s"},
			{23*time.Hour + 30*time.Minute, "decide 1", "1 used, 9 left, next 24h0m0s, reset 24h0m0s"},
		},
	},
	{
		name:   "billing month from the 31st",
		limits: []core.Algorithm{core.Calendar{Limit: 10, Every: core.PeriodMonth, In: time.UTC, Anchor: time.Date(2025, 1, 31, 12, 0, 0, 0, time.UTC)}},
		at:     time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC),
		steps: []step{
			{0, "decide 10", "10 used, 0 left, next 672h0m0s, reset 672h0m0s"},
			{672*time.Hour - time.Microsecond, "decide 1", "denied, 10 used, 0 left, retry 1µs, next 1µs, reset 1µs"},
			{time.Microsecond, "decide 1", "1 used, 9 left, next 744h0m0s, reset 744h0m0s"},
		},
	},
	{
		name:   "hour in which the clocks go back by half an hour",
		limits: []core.Algorithm{core.Calendar{Limit: 2, Every: core.PeriodHour, In: lordHowe}},
		at:     time.Date(2026, 4, 4, 14, 30, 0, 0, time.UTC),
		steps: []step{
			{0, "decide 2", "2 used, 0 left, next 30m0s, reset 30m0s"},
			{30 * time.Minute, "decide 1", "1 used, 1 left, next 30m0s, reset 30m0s"},
		},
	},
	{
		name: "log whose short window admits less",
		limits: []core.Algorithm{core.SlidingLog{Windows: []core.Window{
			{Limit: 3, Width: time.Second}, {Limit: 10, Width: time.Hour},
		}}},
		steps: []step{
			{0, "peek 1", "0 used, 3 left"},
			{0, "decide 1", "1 used, 2 left, next 1s, reset 1h0m0s"},
			{10 * time.Second, "peek 1", "1 used, 3 left, next never, reset 59m50s"},
		},
	},
	{
		name:   "any minute",
		limits: []core.Algorithm{core.AnyMinute(10)},
		steps: []step{
			{0, "atmost 20", "got 10, 10 used, 0 left, next 1m1s, reset 1m1s"},
			{time.Minute - time.Microsecond, "peek 1", "denied, 10 used, 0 left, retry 1.000001s, next 1.000001s, reset 1.000001s"},
			{time.Second + time.Microsecond, "atmost 20", "got 10, 10 used, 0 left, next 1m1s, reset 1m1s"},
		},
	},
	{
		name:   "clock that steps forward and back",
		limits: []core.Algorithm{core.PerMinute(10)},
		steps: []step{
			{time.Hour, "decide 10", "10 used, 0 left, next 6s, reset 1m0s"},
			{-time.Hour, "decide 1", "denied, 10 used, 0 left, retry 6s, next 6s, reset 1m0s"},
			{6 * time.Second, "decide 1", "10 used, 0 left, next 6s, reset 1m0s"},
			{time.Hour, "decide 4", "4 used, 6 left, next 6s, reset 24s"},
			{-time.Microsecond, "peek 4", "5 used, 5 left, next 1µs, reset 24.000001s"},
			{-time.Second, "peek 4", "5 used, 5 left, next 1.000001s, reset 25.000001s"},
			{-time.Minute, "peek 4", "denied, 10 used, 0 left, retry 24s, next 6s, reset 1m0s"},
			{-2 * time.Hour, "peek 4", "denied, 10 used, 0 left, retry 24s, next 6s, reset 1m0s"},
			{2*time.Hour + 2*time.Minute, "peek 10", "0 used, 10 left"},
		},
	},
	{
		name:   "clock that steps over the start of a month",
		limits: []core.Algorithm{core.Calendar{Limit: 10, Every: core.PeriodMonth, In: time.UTC}},
		at:     time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
		steps: []step{
			{0, "atmost 20", "got 10, 10 used, 0 left, next 744h0m0s, reset 744h0m0s"},
			{-50 * time.Millisecond, "atmost 20", "got 0, denied, 10 used, 0 left, retry 744h0m0.05s, next 744h0m0.05s, reset 744h0m0.05s"},
			{50 * time.Millisecond, "atmost 20", "got 0, denied, 10 used, 0 left, retry 744h0m0s, next 744h0m0s, reset 744h0m0s"},
			{-50 * time.Millisecond, "atmost 20", "got 0, denied, 10 used, 0 left, retry 744h0m0.05s, next 744h0m0.05s, reset 744h0m0.05s"},
		},
	},
	{
		// A bucket that was never full in between refunds all of an estimate. Once it has been full,
		// there is nothing to refund.
		name:   "refund after the time that a bucket takes to refill",
		limits: []core.Algorithm{core.PerMinute(60)},
		steps: []step{
			{0, "reserve 50", "50 used, 10 left, next 1s, reset 50s"},
			{30 * time.Second, "reserve 30", "50 used, 10 left, next 1s, reset 50s"},
			{30 * time.Second, "reserve 30", "50 used, 10 left, next 1s, reset 50s"},
			{0, "settle 0 20", "20 used, 40 left, next 1s, reset 20s"},
			{2 * time.Minute, "reserve 1", "1 used, 59 left, next 1s, reset 1s"},
			{0, "cancel 2", "1 used, 59 left, next 1s, reset 1s"},
		},
	},
	{
		name:   "refunds of reservations for later leave nothing",
		limits: []core.Algorithm{core.TokenBucket{Rate: 7, Per: 10 * time.Hour, Burst: 10}},
		steps: []step{
			{0, "decide 10", "10 used, 0 left, next 1h25m42.857143s, reset 14h17m8.571429s"},
			{0, "reserve 10 for 100h", "20 used, 0 left, next 15h42m51.428572s, reset 28h34m17.142858s, delay 14h17m8.571429s"},
			{0, "reserve 10 for 100h", "30 used, 0 left, next 30h0m0s, reset 42h51m25.714286s, delay 28h34m17.142858s"},
			{0, "cancel 1", "denied, 20 used, 0 left, retry 15h42m51.428572s, next 15h42m51.428572s, reset 28h34m17.142858s"},
			{0, "cancel 0", "denied, 10 used, 0 left, retry 1h25m42.857143s, next 1h25m42.857143s, reset 14h17m8.571429s"},
			{4 * time.Hour, "reserve 1", "9 used, 1 left, next 17m8.571429s, reset 11h42m51.428572s"},
			{0, "decide 1", "10 used, 0 left, next 17m8.571429s, reset 13h8m34.285715s"},
			{0, "cancel 2", "9 used, 1 left, next 17m8.571429s, reset 11h42m51.428572s"},
		},
	},
	{
		// What is held counts the units of the request itself, and of nothing that has ended.
		name:   "held units",
		limits: []core.Algorithm{frozen(10)},
		hold:   time.Minute,
		steps: []step{
			{0, "reserve 1", "1 used, 9 left, 1 held, next never, reset never"},
			{0, "reserve 2", "3 used, 7 left, 3 held, next never, reset never"},
			{0, "reserve 4", "7 used, 3 left, 7 held, next never, reset never"},
			{0, "settle 1 1", "6 used, 4 left, 5 held, next never, reset never"},
			{0, "cancel 0", "5 used, 5 left, 4 held, next never, reset never"},
			{30 * time.Second, "reserve 1", "6 used, 4 left, 5 held, next never, reset never"},
			// The third ends.
			{30 * time.Second, "peek 1", "2 used, 8 left, 1 held, next never, reset never"},
			{0, "renew 3", "2 used, 8 left, 1 held, next never, reset never"},
			{time.Minute - time.Microsecond, "peek 1", "2 used, 8 left, 1 held, next never, reset never"},
			{0, "settle 3 9", "denied, 10 used, 0 left, retry never, next never, reset never"},
		},
	},
	{
		name:   "late refund, window from first",
		limits: []core.Algorithm{core.FixedWindow{Limit: 3, Window: time.Minute, FromFirst: true}},
		steps: []step{
			{0, "reserve 3", "3 used, 0 left, next 1m0s, reset 1m0s"},
			{85 * time.Second, "decide 1", "1 used, 2 left, next 1m0s, reset 1m0s"},
			{0, "cancel 0", "1 used, 2 left, next 1m0s, reset 1m0s"},
		},
	},
	{
		name:   "late refund, buckets",
		limits: []core.Algorithm{core.SlidingWindow{Limit: 3, Window: time.Minute, Buckets: 6}},
		steps: []step{
			{0, "reserve 3", "3 used, 0 left, next 1m10s, reset 1m10s"},
			{85 * time.Second, "decide 1", "1 used, 2 left, next 1m5s, reset 1m5s"},
			{0, "cancel 0", "1 used, 2 left, next 1m5s, reset 1m5s"},
		},
	},
	{
		name:   "late refund, log",
		limits: []core.Algorithm{core.SlidingLog{Windows: []core.Window{{Limit: 3, Width: time.Minute}}}},
		steps: []step{
			{0, "reserve 3", "3 used, 0 left, next 1m0s, reset 1m0s"},
			{85 * time.Second, "decide 1", "1 used, 2 left, next 1m0s, reset 1m0s"},
			{0, "cancel 0", "1 used, 2 left, next 1m0s, reset 1m0s"},
		},
	},
	{
		name:   "unlimited",
		limits: []core.Algorithm{core.Unlimited{}},
		steps: []step{
			{0, "decide 9223372036854775807", "0 used, 0 left"},
			{0, "atmost 7", "got 7, 0 used, 0 left"},
			{0, "reserve 5", "0 used, 0 left"},
			{0, "settle 0 7", "0 used, 0 left"},
			{0, "reset", "0 used, 0 left"},
		},
	},
	{
		name:   "deny all",
		limits: []core.Algorithm{core.DenyAll{}},
		steps: []step{
			{0, "decide 1", "denied, 0 used, 0 left, retry never, next never, reset never"},
			{0, "reserve 1 for 1h", "denied, 0 used, 0 left, retry never, next never, reset never"},
			{0, "atmost 7", "got 0, denied, 0 used, 0 left, retry never, next never, reset never"},
		},
	},
}
