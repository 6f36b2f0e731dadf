package core_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// cachedGate is a Gate that caches denials, on a clock of the test. The Gate uncached shares its
// keys and always asks Redis.
type cachedGate struct {
	*core.Gate
	uncached *core.Gate
	clock    *core.ManualClock
	sent     atomic.Int64 // scripts of the caching Gate
}

func newCachedGate(t *testing.T, s *redistest.Server) *cachedGate {
	gates := &cachedGate{clock: newClock()}
	client := s.Client(t)
	client.AddHook(onScripts(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		gates.sent.Add(int64(len(cmds)))
		return send()
	}))
	gates.Gate = redisGate(t, client, core.Config{Prefix: s.Prefix})
	gates.uncached = redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, DisableDenialCache: true})
	gates.InjectClock(micros(gates.clock))
	gates.uncached.InjectClock(micros(gates.clock))
	return gates
}

// asksRedis reports whether a call asks Redis.
func (gates *cachedGate) asksRedis(call func()) bool {
	before := gates.sent.Load()
	call()
	return gates.sent.Load() > before
}

func eachCachedGate(t *testing.T, f func(t *testing.T, gates *cachedGate)) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) { f(t, newCachedGate(t, s)) })
}

func TestCachedDenialTakesNoRoundTrip(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	ctx := t.Context()
	for _, split := range []bool{false, true} {
		g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
		g.InjectClock(micros(newClock()))
		if split {
			g.SplitByOutermost()
		}
		streams := newSemaphore(t, g, semaphore.Config{})
		for _, l := range limitsOfTen {
			key, other := newKey(t, l.name, fmt.Sprint(split)), newKey(t, l.name+" other", fmt.Sprint(split))
			charges := []core.Charge{
				{Policy: limited(t, "free", core.Unlimited{}), Key: key, Cost: 1},
				{Policy: newPolicy(t, core.PolicyConfig{Name: "watch", Algorithm: frozen(1), Shadow: true}), Key: key, Cost: 2},
				{Policy: limited(t, "wide", frozen(1000)), Key: other, Cost: 1},
				{Policy: limited(t, "p", l.algorithm), Key: key, Cost: 10},
				{Policy: limited(t, "wider", frozen(2000)), Key: key, Cost: 1},
			}
			decide(t, g, charges...)
			charges[3].Cost = 1
			// On a cluster the first decision asks first the part that allows, and refunds it.
			for range 3 {
				decide(t, g, charges...)
			}
			asked := decide(t, g, charges...)
			before := s.Calls(t, "evalsha", "eval")
			for range 20 {
				d := decide(t, g, charges...)
				r, charged, err := g.Charge(ctx, charges...)
				lease, admitted, err2 := streams.Admit(ctx, semaphore.Request{Caps: []semaphore.Cap{{Key: key, Limit: 1}}}, charges...)
				if r != nil || lease != nil || err != nil || err2 != nil {
					t.Fatal(r, lease, err, err2)
				}
				for _, d := range []core.Decision{d, charged, admitted} {
					if d.Allowed || d.Source != core.SourceCache || d.Len() != 5 {
						t.Fatalf("%s: %s", l.name, show(d))
					}
					wait := d.RetryAfter()
					if was := asked.RetryAfter(); wait > was || (wait == core.Never) != (was == core.Never) {
						t.Errorf("%s: wait %v, was %v", l.name, wait, was)
					}
					for i := range d.Len() {
						r := d.At(i)
						if r.Allowed != (i%2 == 0) || r.Known != (i == 3) || r.Source != core.SourceCache || r.Limit != asked.At(i).Limit {
							t.Errorf("%s: result %d: %s", l.name, i, show(d))
						}
					}
				}
			}
			gatetest.Equal(t, s.Calls(t, "evalsha", "eval"), before, "%s, split %v: scripts for denials", l.name, split)
		}
	}
	off := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, DisableDenialCache: true})
	c := core.Charge{Policy: limited(t, "p", frozen(1)), Key: newKey(t, "off"), Cost: 2}
	before := s.Calls(t, "evalsha", "eval")
	for range 20 {
		if d := decide(t, off, c); d.Allowed || d.Source != core.SourceRedis {
			t.Fatal(show(d))
		}
	}
	if n := s.Calls(t, "evalsha", "eval") - before; n < 20 {
		t.Errorf("%d scripts for 20 denials without a cache", n)
	}
}

// The waits of a cached denial count down, and it reports nothing that time may have changed.
func TestCachedDenialCountsDown(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		limit core.Algorithm
		spend []int64
		cost  int64
		after time.Duration
		want  string
	}{
		{"at once", core.PerMinute(6), []int64{6}, 1, 0, "6 used, 0 left, retry 10s, next 10s, reset 1m0s"},
		{"later", core.PerMinute(6), []int64{6}, 1, 400 * time.Millisecond, "6 used, 0 left, retry 9.6s, next 9.6s, reset 59.6s"},
		{"a microsecond before the wait ends", core.PerSecond(6), []int64{6}, 1, 166_666 * time.Microsecond, "6 used, 0 left, retry 1µs, next 1µs, reset 833.334ms"},
		{"no room for a smaller cost yet", core.PerSecond(6), []int64{6}, 2, 100 * time.Millisecond, "6 used, 0 left, retry 233.334ms, next 66.667ms, reset 900ms"},
		{"never", core.PerMinute(6), nil, 7, 999 * time.Millisecond, "unknown, retry never"},
		{"never, with nothing left", frozen(6), []int64{6}, 1, 999 * time.Millisecond, "6 used, 0 left, retry never, next never, reset never"},
		{"debt above the limit", core.PerMinute(6), []int64{6, 1}, 1, time.Second / 2, "unknown, retry 19.5s"},
		{"fixed window", core.FixedWindow{Limit: 6, Window: time.Minute, FromFirst: true}, []int64{6}, 1, time.Second / 2, "6 used, 0 left, retry 59.5s, next 59.5s, reset 59.5s"},
		{"two counters", core.SlidingWindow{Limit: 6, Window: time.Minute}, []int64{6}, 1, time.Second / 2, "6 used, 0 left, retry 1m9.5s, next 1m9.5s, reset 1m59.5s"},
		{"log", core.SlidingLog{Windows: []core.Window{{6, time.Minute}, {7, time.Hour}}}, []int64{6}, 1, time.Second / 2, "6 used, 0 left, retry 59.5s, next 59.5s, reset 59m59.5s"},
		{"deny all", core.DenyAll{}, nil, 1, 0, "0 used, 0 left, retry never, next never, reset never"},
	}
	wait := func(d time.Duration) string {
		if d == core.Never {
			return "never"
		}
		return d.String()
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachCachedGate(t, func(t *testing.T, gates *cachedGate) {
				c := core.Charge{Policy: limited(t, "p", tt.limit), Key: newKey(t, "k"), Cost: core.NoCost}
				beside := core.Charge{Policy: limited(t, "q", core.PerSecond(9)), Key: c.Key, Cost: 1}
				for _, c.Cost = range tt.spend {
					reserve(t, gates.Gate, time.Hour, c)
				}
				c.Cost = tt.cost
				decide(t, gates.Gate, c, beside)
				gates.clock.Advance(tt.after)
				var d core.Decision
				if gates.asksRedis(func() { d = decide(t, gates.Gate, c, beside) }) {
					t.Error("a cached denial asks Redis")
				}
				r, got := d.At(0), "unknown"
				if r.Known {
					got = fmt.Sprintf("%d used, %d left", r.Used, r.Remaining)
				}
				got += ", retry " + wait(r.RetryAfter)
				if r.Known {
					got += ", next " + wait(r.NextAfter) + ", reset " + wait(r.ResetAfter)
				} else if r.Used != 0 || r.Remaining != 0 || r.NextAfter != 0 || r.ResetAfter != 0 {
					t.Errorf("an unknown result has values: %s", show(d))
				}
				if got != tt.want || r.Allowed || d.At(1).Known || !d.At(1).Allowed {
					t.Errorf("%s\ngot  %s\nwant %s", show(d), got, tt.want)
				}
				asked := peek(t, gates.uncached, c, beside)
				if want := asked.At(0); r.RetryAfter != want.RetryAfter || r.Limit != want.Limit || r.Window != want.Window || r.Violates(0) != want.Violates(0) {
					t.Errorf("Redis says %s", show(asked))
				}
			})
		})
	}
}

// If several charges deny, each denies for as long as its own limit has no room.
func TestCachedDenialOfSeveralCharges(t *testing.T) {
	t.Parallel()
	eachCachedGate(t, func(t *testing.T, gates *cachedGate) {
		key := newKey(t, "k")
		charges := []core.Charge{
			{Policy: newPolicy(t, core.PolicyConfig{Name: "s", Shadow: true,
				Algorithm: core.TokenBucket{Rate: 5, Per: time.Second, Burst: 1}}), Key: key},
			{Policy: limited(t, "q", core.TokenBucket{Rate: 2, Per: time.Second, Burst: 1}), Key: key},
		}
		for range 2 {
			decide(t, gates.Gate, charges...)
		}
		gates.clock.Advance(199 * time.Millisecond)
		for _, denies := range []bool{true, false} {
			d := decide(t, gates.Gate, charges...)
			if d.Source != core.SourceCache || d.At(0).Allowed == denies || d.At(1).Allowed {
				t.Errorf("%v: %s", d.Source, show(d))
			}
			gates.clock.Advance(time.Millisecond)
		}
	})
}

// A remembered block does not hide that another limit may deny for longer, whatever was asked when
// it was remembered.
func TestRememberedBlockHidesNoLongerWait(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		limit core.Algorithm
		costs []int64 // of the decisions before
		cost  int64
		known bool // without a round trip
	}{
		{"spent day", core.FixedWindow{Limit: 1, Window: 24 * time.Hour, FromFirst: true}, []int64{1}, 1, false},
		{"spent day, another cost", core.FixedWindow{Limit: 1, Window: 24 * time.Hour, FromFirst: true}, []int64{1}, 4, false},
		{"spent year", core.Calendar{Limit: 1, Every: core.PeriodYear, In: time.UTC}, []int64{1}, 1, false},
		{"spent budget", frozen(1), []int64{1}, 1, false},
		{"cost that never fits", core.PerSecond(5), nil, 6, false},
		{"limit of nothing", core.DenyAll{}, nil, 1, false},
		{"longer block", core.Block{Strikes: 1, Within: time.Minute, For: time.Hour}, []int64{1}, 1, false},
		{"untouched day", core.FixedWindow{Limit: 1, Window: 24 * time.Hour}, nil, 1, false},
		{"spent second", core.FixedWindow{Limit: 5, Window: time.Second}, []int64{5}, 1, true},
		{"second without a limit", core.Unlimited{}, nil, 1, true},
		{"shorter block", core.Block{Strikes: 1, Within: time.Hour, For: time.Second}, []int64{1}, 1, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachCachedGate(t, func(t *testing.T, gates *cachedGate) {
				bans := core.Charge{Key: newKey(t, "k"), Cost: 1, Policy: limited(t, "bans",
					core.Block{Strikes: 1, Within: time.Minute, For: 10 * time.Second})}
				other := core.Charge{Key: newKey(t, "k"), Policy: limited(t, "other", tt.limit)}
				decide(t, gates.Gate, bans)
				for _, other.Cost = range tt.costs {
					decide(t, gates.Gate, other)
				}
				decide(t, gates.Gate, bans) // remembers the block, and no other limit
				other.Cost = tt.cost
				want := peek(t, gates.uncached, bans, other)
				var d core.Decision
				asked := gates.asksRedis(func() { d = decide(t, gates.Gate, bans, other) })
				if d.Allowed || d.RetryAfter() != want.RetryAfter() || asked == tt.known {
					t.Errorf("asked Redis: %v, %v, want %v", asked, d.RetryAfter(), want.RetryAfter())
				}
			})
		})
	}
}

// A denial that Redis gave after its clock stepped back is true whatever limits of the key decide
// meanwhile.
func TestCachedDenialAfterServerClockBack(t *testing.T) {
	t.Parallel()
	eachCachedGate(t, func(t *testing.T, gates *cachedGate) {
		slow, quick := core.TokenBucket{Rate: 2, Per: time.Second, Burst: 3}, core.TokenBucket{Rate: 4, Per: time.Second, Burst: 3}
		plan := newPolicy(t, core.PolicyConfig{Name: "plan", Algorithm: changing(slow, quick)})
		never := limited(t, "never", core.LeakyBucket{Rate: 7, Per: time.Second, Capacity: 3})
		for _, back := range []time.Duration{700 * time.Millisecond, 2 * time.Second} {
			server := newClock()
			gates.InjectServerClock(micros(server))
			gates.uncached.InjectServerClock(micros(server))
			key := newKey(t, fmt.Sprint(back))
			other := core.Charge{Policy: plan, Key: key, Cost: 3, Limit: quick}
			decide(t, gates.Gate, other)
			server.Advance(-back)
			charges := []core.Charge{{Policy: plan, Key: key, Cost: 3, Limit: slow}, {Policy: never, Key: key, Cost: 5}}
			decide(t, gates.Gate, charges...)
			decide(t, gates.Gate, other)
			asked := peek(t, gates.uncached, charges...)
			var d core.Decision
			if gates.asksRedis(func() { d = decide(t, gates.Gate, charges...) }) {
				t.Errorf("%v back: the denial is not cached", back)
			}
			if r, want := d.At(0), asked.At(0); r.Allowed || want.Allowed || r.RetryAfter != want.RetryAfter || r.Known && r.Used != want.Used {
				t.Errorf("%v back: %s\nRedis says %s", back, show(d), show(asked))
			}
		}
	})
}

// While Redis is down, cached denials stay valid until they expire. Then the failure mode decides.
func TestCachedDenialWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
	clock := newClock()
	g.InjectClock(micros(clock))
	c := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: frozen(1), OnFailure: core.FailOpen}), Key: newKey(t, "k"), Cost: 1}
	decide(t, g, c)
	decide(t, g, c)
	s.Kill()
	clock.Advance(time.Second - time.Microsecond)
	if d := decide(t, g, c); d.Allowed || d.Source != core.SourceCache {
		t.Errorf("within a second: %v, %s", d.Source, show(d))
	}
	clock.Advance(time.Microsecond)
	if d, err := g.Decide(t.Context(), c); err != nil || !d.Allowed || d.Source != core.SourceOpen {
		t.Errorf("after a second: %v, %v, %s", err, d.Source, show(d))
	}
	// Denials of the Local mode are not cached.
	c.Policy = limited(t, "q", frozen(1))
	for i := range 3 {
		if d, err := g.Decide(t.Context(), c); err != nil || d.Allowed != (i == 0) || d.Source != core.SourceLocal {
			t.Errorf("%v, %v, %s", err, d.Source, show(d))
		}
	}
}

func TestDenialCacheIsBounded(t *testing.T) {
	t.Parallel()
	gates := newCachedGate(t, redistest.Real(t))
	p := limited(t, "p", frozen(1))
	for i := range 5000 {
		decide(t, gates.Gate, core.Charge{Policy: p, Key: newKey(t, strconv.Itoa(i)), Cost: 2})
	}
	if n := gates.KnownDenials(); n == 0 || n > 4096 {
		t.Errorf("%d denials are cached", n)
	}
}

// Compared with a Gate that always asks Redis, a Gate that caches denials never allows what Redis
// denies. It denies what has room only for up to a second after another process gave units back or
// the server's clock stepped.
func TestCachedDenialsAgreeWithRedis(t *testing.T) {
	policies := []*core.Policy{
		limited(t, "bucket", core.TokenBucket{Rate: 3, Per: time.Second, Burst: 4}),
		newPolicy(t, core.PolicyConfig{Name: "plan", Algorithm: changing(
			core.TokenBucket{Rate: 2, Per: time.Second, Burst: 3}, core.TokenBucket{Rate: 2, Per: time.Second, Burst: 6}, core.TokenBucket{Rate: 4, Per: time.Second, Burst: 3})}),
		limited(t, "leaky", core.LeakyBucket{Rate: 7, Per: time.Second, Capacity: 3}),
		limited(t, "session", core.TokenBucket{Burst: 2, Per: 700 * time.Millisecond}),
		limited(t, "window", core.FixedWindow{Limit: 3, Window: 700 * time.Millisecond}),
		newPolicy(t, core.PolicyConfig{Name: "window-plan", Algorithm: changing(
			core.FixedWindow{Limit: 2, Window: time.Second, FromFirst: true}, core.FixedWindow{Limit: 4, Window: time.Second, FromFirst: true})}),
		limited(t, "counters", core.SlidingWindow{Limit: 3, Window: 800 * time.Millisecond}),
		limited(t, "buckets", core.SlidingWindow{Limit: 3, Window: 800 * time.Millisecond, Buckets: 8}),
		limited(t, "log", core.SlidingLog{Windows: []core.Window{{2, 300 * time.Millisecond}, {5, 2 * time.Second}}}),
		newPolicy(t, core.PolicyConfig{Name: "shadow", Algorithm: core.PerSecond(2), Shadow: true}),
		limited(t, "none", core.DenyAll{}),
	}
	eachCachedGate(t, func(t *testing.T, gates *cachedGate) {
		var operations []string // the first ones are the most frequent
		for range 20 {
			operations = append(operations, "decide", "decide", "time")
		}
		operations = append(operations, "reserve", "reserve", "correct", "correct", "reset", "leap")
		known, run := 0, 0
		server := newClock()
		gates.InjectServerClock(micros(server))
		gates.uncached.InjectServerClock(micros(server))
		rapid.Check(t, func(rt *rapid.T) {
			run++
			var held []*core.Reservation
			stale := int64(0) // until then a cached denial may be outdated
			paid := int64(0)  // until then its wait may be longer: a larger limit has paid more of a debt
			used := rapid.Permutation(policies).Draw(rt, "policies")[:3]
			for range rounds(t, 320) {
				ctx, plan := t.Context(), rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(rt, "plan")
				var charges []core.Charge
				for i := range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(rt, "charges") {
					charges = append(charges, core.Charge{
						Policy: used[i], Key: newKey(t, fmt.Sprint(run)), Cost: rapid.SampledFrom([]int64{1, 1, 1, 2, 3, 5, core.NoCost}).Draw(rt, "cost"),
					})
				}
				charges = under(plan, charges...)
				gate := gates.Gate
				other := rapid.IntRange(0, 9).Draw(rt, "other") == 9
				if other {
					gate = gates.uncached
				}
				switch op := rapid.SampledFrom(operations).Draw(rt, "operation"); op {
				case "time":
					d := rapid.SampledFrom([]int64{1, 20_000, 100_000, 166_666, 400_000, 1_000_000}).Draw(rt, "microseconds")
					gates.clock.Advance(time.Duration(d) * time.Microsecond)
					server.Advance(time.Duration(d) * time.Microsecond)
				case "leap":
					server.Advance(time.Duration(rapid.SampledFrom([]int64{-2_000_000, -30_000, 30_000, 400_000, 2_000_000}).Draw(rt, "leap")) * time.Microsecond)
					stale = gates.clock.Now().UnixMicro() + 1_000_000
				case "reserve":
					r, _, err := gate.Reserve(ctx, rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(rt, "wait"), charges...)
					noError(rt, err)
					if r != nil && gate == gates.Gate {
						held = append(held, r)
					}
				case "correct":
					if len(held) == 0 {
						continue
					}
					r := held[len(held)-1]
					held = held[:len(held)-1]
					actual := make([]int64, r.Charges())
					for i := range actual {
						actual[i] = rapid.Int64Range(0, 3).Draw(rt, "actual")
					}
					noError(rt, r.Settle(ctx, actual...))
				case "reset":
					for _, c := range charges {
						noError(rt, gate.Reset(ctx, c))
					}
					held = nil
					if other {
						stale = gates.clock.Now().UnixMicro() + 1_000_000
					}
				case "decide":
					want := gatetest.Must(gates.uncached.Peek(ctx, charges...))(rt)
					got := gatetest.Must(gates.Decide(ctx, charges...))(rt)
					if got.Allowed && !want.Allowed || got.Allowed != want.Allowed && gates.clock.Now().UnixMicro() >= stale {
						rt.Fatalf("at %d: %v %s\nwant %s", gates.clock.Now().UnixMicro(), got.Source, show(got), show(want))
					}
					if got.Allowed && plan == 1 {
						paid = gates.clock.Now().UnixMicro() + 1_000_000
					}
					if got.Source != core.SourceCache || gates.clock.Now().UnixMicro() < stale {
						continue
					}
					known++
					wait := got.RetryAfter()
					if w := want.RetryAfter(); wait > w && gates.clock.Now().UnixMicro() >= paid {
						rt.Fatalf("wait %v, want at most %v", wait, w)
					}
					for i := range got.Len() {
						if r, w := got.At(i), want.At(i); r.Known && (r.Remaining != w.Remaining || r.Limit != w.Limit || w.Known != r.Known) {
							rt.Fatalf("%s\nwant %s", show(got), show(want))
						}
					}
				}
			}
		})
		if known < 10 {
			t.Errorf("only %d denials came from the cache", known)
		}
		t.Logf("%d denials came from the cache", known)
	})
}

// plans are the limits of a key that changes its plan.
var plans = []core.Algorithm{frozen(3), frozen(5), core.SlidingWindow{Limit: 3, Window: time.Hour}}

func TestCachedDenialIsDropped(t *testing.T) {
	t.Parallel()
	c := func(t *testing.T, cost int64) core.Charge {
		return core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: changing(plans...)}), Key: newKey(t, "k"), Cost: cost}
	}
	tests := []struct {
		name    string
		do      func(t *testing.T, gates *cachedGate, c core.Charge, r *core.Reservation) core.Decision
		allowed bool
		source  core.Source
	}{
		{"nothing", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			return decide(t, gates.Gate, c)
		}, false, core.SourceCache},
		{"the same cost, by its zero value", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			c.Cost = 0
			return decide(t, gates.Gate, c)
		}, false, core.SourceCache},
		{"Peek", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			return peek(t, gates.Gate, c)
		}, false, core.SourceRedis},
		{"SpendUpTo", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			_, d, err := atMost(gates.Gate, t.Context(), c)
			worked(t, err)
			return d
		}, false, core.SourceRedis},
		{"Reserve", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			_, d := reserve(t, gates.Gate, time.Hour, c)
			return d
		}, false, core.SourceRedis},
		{"a smaller cost", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			c.Cost = core.NoCost
			return decide(t, gates.Gate, c)
		}, true, core.SourceRedis},
		{"Reset", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			worked(t, gates.Reset(t.Context(), c))
			return decide(t, gates.Gate, c)
		}, true, core.SourceRedis},
		{"Cancel", func(t *testing.T, gates *cachedGate, c core.Charge, r *core.Reservation) core.Decision {
			cancel(t, r)
			return decide(t, gates.Gate, c)
		}, true, core.SourceRedis},
		{"Settle for less", func(t *testing.T, gates *cachedGate, c core.Charge, r *core.Reservation) core.Decision {
			settle(t, r, 1)
			return decide(t, gates.Gate, c)
		}, true, core.SourceRedis},
		{"Settle for more", func(t *testing.T, gates *cachedGate, c core.Charge, r *core.Reservation) core.Decision {
			settle(t, r, 4)
			return decide(t, gates.Gate, c)
		}, false, core.SourceRedis},
		{"a raised limit", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			d, err := gates.Decide(t.Context(), under(1, c)...)
			worked(t, err)
			return d
		}, true, core.SourceRedis},
		{"another algorithm", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			d, err := gates.Decide(t.Context(), under(2, c)...)
			worked(t, err)
			return d
		}, true, core.SourceRedis},
		{"another policy of the same name", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			c.Policy = limited(t, "p", plans[1])
			return decide(t, gates.Gate, c)
		}, true, core.SourceRedis},
		{"Reset by another process, at once", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			worked(t, gates.uncached.Reset(t.Context(), c))
			gates.clock.Advance(time.Second - time.Microsecond)
			return decide(t, gates.Gate, c)
		}, false, core.SourceCache},
		{"Reset by another process, a second later", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			worked(t, gates.uncached.Reset(t.Context(), c))
			gates.clock.Advance(time.Second)
			return decide(t, gates.Gate, c)
		}, true, core.SourceRedis},
		{"a charge that a later denial refunds", func(t *testing.T, gates *cachedGate, c core.Charge, r *core.Reservation) core.Decision {
			settle(t, r, 2)
			gates.SplitByOutermost()
			full := core.Charge{Policy: limited(t, "full", frozen(1)), Key: newKey(t, "other"), Cost: 1}
			decide(t, gates.Gate, full)
			c.Cost = 1
			if d := decide(t, gates.Gate, c, full); d.Allowed || !d.At(0).Allowed {
				t.Errorf("not refunded: %s", show(d))
			}
			return decide(t, gates.Gate, c)
		}, true, core.SourceRedis},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachCachedGate(t, func(t *testing.T, gates *cachedGate) {
				c := c(t, 3)
				r, _ := reserve(t, gates.Gate, 0, c)
				c.Cost = 1
				decide(t, gates.Gate, c)
				if gates.asksRedis(func() { decide(t, gates.Gate, c) }) {
					t.Error("the denial is not cached")
				}
				if d := tt.do(t, gates, c, r); d.Allowed != tt.allowed || d.Source != tt.source {
					t.Errorf("%v: %s", d.Source, show(d))
				}
			})
		})
	}
}

// Neither a denial nor a reset whose reply is late hides that the key was reset.
func TestConcurrentDenialAndReset(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, slow := range []string{"evalsha", "del"} {
		t.Run(slow, func(t *testing.T) {
			client := s.Client(t)
			g := redisGate(t, client, core.Config{Prefix: s.Prefix + slow[:1]})
			one := core.FixedWindow{Limit: 1, Window: 24 * time.Hour, FromFirst: true}
			c := core.Charge{Policy: limited(t, "p", one), Key: newKey(t, "k"), Cost: 1}
			decide(t, g, c)
			if slow == "del" {
				decide(t, g, c)
			}
			// Replies to one command are held after the server has run it.
			held, let := make(chan struct{}), make(chan struct{})
			client.AddHook(gatetest.OnCommands(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				err := send()
				if cmds[0].Name() == slow {
					held <- struct{}{}
					<-let
				}
				return err
			}))
			done := make(chan core.Decision, 1)
			reset := func() {
				worked(t, g.Reset(context.Background(), c))
			}
			if slow == "evalsha" {
				go func() { d, _ := g.Decide(context.Background(), c); done <- d }()
				<-held
				reset()
			} else {
				go func() { reset(); done <- core.Decision{} }()
				<-held
				admits(t, g, c)
				decide(t, g, c)
			}
			let <- struct{}{}
			if d := <-done; d.Allowed {
				t.Errorf("held: %s", show(d))
			}
			if slow == "evalsha" {
				go func() {
					<-held
					let <- struct{}{}
				}()
			}
			d := decide(t, g, c)
			if allowed := slow == "evalsha"; d.Allowed != allowed || d.Source != core.SourceRedis {
				t.Errorf("%v: %s", d.Source, show(d))
			}
		})
	}
}
