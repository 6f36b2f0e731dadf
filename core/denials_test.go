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
	"github.com/headgate/headgate/internal/redistest"
)

// scripts counts those that a client sends.
type scripts struct{ atomic.Int64 }

func (s *scripts) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *scripts) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			s.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (s *scripts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// knowing is a gate that knows what was denied, on a clock of the test, and one that asks each time
// for the same keys.
type knowing struct {
	*core.Gate
	asking *core.Gate
	clock  *manualClock
	sent   scripts // by the first
}

func newKnowing(t *testing.T, s *redistest.Server) *knowing {
	k := &knowing{clock: newClock()}
	client := s.Client(t)
	client.AddHook(&k.sent)
	k.Gate = redisGate(t, client, core.Config{Prefix: s.Prefix})
	k.asking = redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, DisableDenialCache: true})
	k.InjectClock(k.clock.now)
	k.asking.InjectClock(k.clock.now)
	return k
}

// asks says whether a call asks Redis.
func (k *knowing) asks(call func()) bool {
	before := k.sent.Load()
	call()
	return k.sent.Load() > before
}

func eachKnowing(t *testing.T, f func(t *testing.T, k *knowing)) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) { f(t, newKnowing(t, s)) })
}

func TestDenialTakesNoRoundTrip(t *testing.T) {
	s := redistest.Real(t)
	ctx := t.Context()
	for _, split := range []bool{false, true} {
		g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
		g.InjectClock(newClock().now)
		if split {
			g.SplitByOutermost()
		}
		streams := semaphore(t, g, core.SemaphoreConfig{})
		for _, l := range tens {
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
			for range 3 { // on a cluster the first is not the one that denies, and is given back
				decide(t, g, charges...)
			}
			asked := decide(t, g, charges...)
			before := s.Calls(t, "evalsha", "eval")
			for range 20 {
				d := decide(t, g, charges...)
				r, charged, err := g.Charge(ctx, charges...)
				lease, admitted, err2 := streams.TryAdmit(ctx, core.SlotRequest{Levels: []core.Level{{Key: key, Limit: 1}}}, charges...)
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
			if n := s.Calls(t, "evalsha", "eval") - before; n != 0 {
				t.Errorf("%s, split %v: %d scripts for denials", l.name, split, n)
			}
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
		t.Errorf("%d scripts for 20 denials of a gate that asks each time", n)
	}
}

// Waits count down, and nothing is told that time may have changed.
func TestDenialCountsDown(t *testing.T) {
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
		{"the last microsecond", core.PerSecond(6), []int64{6}, 1, 166_666 * time.Microsecond, "6 used, 0 left, retry 1µs, next 1µs, reset 833.334ms"},
		{"no room for less yet", core.PerSecond(6), []int64{6}, 2, 100 * time.Millisecond, "6 used, 0 left, retry 233.334ms, next 66.667ms, reset 900ms"},
		{"never", core.PerMinute(6), nil, 7, 999 * time.Millisecond, "unknown, retry never"},
		{"never, and nothing is left", frozen(6), []int64{6}, 1, 999 * time.Millisecond, "6 used, 0 left, retry never, next never, reset never"},
		{"more than all", core.PerMinute(6), []int64{6, 1}, 1, time.Second / 2, "unknown, retry 19.5s"},
		{"fixed window", core.FixedWindow{Limit: 6, Window: time.Minute, FromFirst: true}, []int64{6}, 1, time.Second / 2, "6 used, 0 left, retry 59.5s, next 59.5s, reset 59.5s"},
		{"two counters", core.SlidingWindow{Limit: 6, Window: time.Minute}, []int64{6}, 1, time.Second / 2, "6 used, 0 left, retry 1m9.5s, next 1m9.5s, reset 1m59.5s"},
		{"log", core.SlidingLog{Windows: []core.Window{{6, time.Minute}, {7, time.Hour}}}, []int64{6}, 1, time.Second / 2, "6 used, 0 left, retry 59.5s, next 59.5s, reset 59m59.5s"},
		{"nothing at all", core.DenyAll{}, nil, 1, 0, "0 used, 0 left, retry never, next never, reset never"},
	}
	wait := func(d time.Duration) string {
		if d == core.Never {
			return "never"
		}
		return d.String()
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachKnowing(t, func(t *testing.T, k *knowing) {
				c := core.Charge{Policy: limited(t, "p", tt.limit), Key: newKey(t, "k")}
				beside := core.Charge{Policy: limited(t, "q", core.PerSecond(9)), Key: c.Key, Cost: 1}
				for _, c.Cost = range tt.spend {
					reserve(t, k.Gate, time.Hour, c)
				}
				c.Cost = tt.cost
				decide(t, k.Gate, c, beside)
				k.clock.advance(tt.after)
				var d core.Decision
				if k.asks(func() { d = decide(t, k.Gate, c, beside) }) {
					t.Error("asks Redis")
				}
				r, got := d.At(0), "unknown"
				if r.Known {
					got = fmt.Sprintf("%d used, %d left", r.Used, r.Remaining)
				}
				got += ", retry " + wait(r.RetryAfter)
				if r.Known {
					got += ", next " + wait(r.NextAfter) + ", reset " + wait(r.ResetAfter)
				} else if r.Used != 0 || r.Remaining != 0 || r.NextAfter != 0 || r.ResetAfter != 0 {
					t.Errorf("what is not known is told: %s", show(d))
				}
				if got != tt.want || r.Allowed || d.At(1).Known || !d.At(1).Allowed {
					t.Errorf("%s\ngot  %s\nwant %s", show(d), got, tt.want)
				}
				asked := peek(t, k.asking, c, beside)
				if want := asked.At(0); r.RetryAfter != want.RetryAfter || r.Limit != want.Limit || r.Window != want.Window || r.Violates(0) != want.Violates(0) {
					t.Errorf("Redis says %s", show(asked))
				}
			})
		})
	}
}

// While others may spend what is left of a key, a denial of more is asked for each time: its wait
// grows with what they spend.
func TestDenialWithRoomForLessAsksRedis(t *testing.T) {
	tests := []struct {
		name  string
		spend int64
		after time.Duration
	}{
		{"room for less", 5, 0},
		{"room for less meanwhile", 6, 200 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachKnowing(t, func(t *testing.T, k *knowing) {
				c := core.Charge{Policy: limited(t, "p", core.PerSecond(6)), Key: newKey(t, "k"), Cost: tt.spend}
				decide(t, k.Gate, c)
				c.Cost = 2
				decide(t, k.Gate, c) // is denied
				k.clock.advance(tt.after)
				other := c
				other.Cost = 1
				decide(t, k.asking, other)
				var d core.Decision
				if !k.asks(func() { d = decide(t, k.Gate, c) }) || d.Allowed {
					t.Fatalf("does not ask: %s", show(d))
				}
				// After the wait that is told the request passes, and not a microsecond earlier.
				wait := d.RetryAfter()
				k.clock.advance(wait - time.Microsecond)
				if d := decide(t, k.Gate, c); d.Allowed {
					t.Error("passes before its wait")
				}
				k.clock.advance(time.Microsecond)
				if d := decide(t, k.Gate, c); !d.Allowed {
					t.Errorf("is denied after its wait: %s", show(d))
				}
			})
		})
	}
}

// Of several that stand in the way, each does so as long as itself has no room.
func TestDenialOfSeveral(t *testing.T) {
	eachKnowing(t, func(t *testing.T, k *knowing) {
		key := newKey(t, "k")
		charges := []core.Charge{
			{Policy: limited(t, "p", core.TokenBucket{Rate: 10, Per: time.Second, Burst: 1}), Key: key, Cost: 1},
			{Policy: limited(t, "q", core.TokenBucket{Rate: 2, Per: time.Second, Burst: 1}), Key: key, Cost: 1},
			{Policy: newPolicy(t, core.PolicyConfig{Name: "s", Algorithm: core.TokenBucket{Rate: 5, Per: time.Second, Burst: 1}, Shadow: true}), Key: key, Cost: 1},
		}
		decide(t, k.Gate, charges...)
		decide(t, k.Gate, charges...)
		asks := 0
		for range 500 {
			if k.asks(func() {
				want := peek(t, k.asking, charges...)
				d := decide(t, k.Gate, charges...)
				for i := range d.Len() {
					if r, w := d.At(i), want.At(i); r.Allowed != w.Allowed || r.RetryAfter != w.RetryAfter || r.Violates(0) != w.Violates(0) || r.Known && r.Used != w.Used {
						t.Errorf("got %s\nwant %s", show(d), show(want))
					}
				}
			}) {
				asks++
			}
			k.clock.advance(time.Millisecond)
		}
		if asks > 1 { // when the first of them has room again, which others may spend
			t.Errorf("asks Redis %d times", asks)
		}
		if d := decide(t, k.Gate, charges...); !d.Allowed {
			t.Error(show(d))
		}
	})
}

// plans are the limits of a key that changes.
var plans = []core.Algorithm{frozen(3), frozen(5), core.SlidingWindow{Limit: 3, Window: time.Hour}}

func TestDenialIsDropped(t *testing.T) {
	c := func(t *testing.T, cost int64) core.Charge {
		return core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: plans[0], For: changing(plans...)}), Key: newKey(t, "k"), Cost: cost}
	}
	tests := []struct {
		name    string
		do      func(t *testing.T, k *knowing, c core.Charge, r *core.Reservation) core.Decision
		allowed bool
		source  core.Source
	}{
		{"nothing", func(t *testing.T, k *knowing, c core.Charge, _ *core.Reservation) core.Decision {
			return decide(t, k.Gate, c)
		}, false, core.SourceCache},
		{"Peek", func(t *testing.T, k *knowing, c core.Charge, _ *core.Reservation) core.Decision {
			return peek(t, k.Gate, c)
		}, false, core.SourceRedis},
		{"AtMost", func(t *testing.T, k *knowing, c core.Charge, _ *core.Reservation) core.Decision {
			_, d, err := atMost(k.Gate, t.Context(), c)
			if err != nil {
				t.Error(err)
			}
			return d
		}, false, core.SourceRedis},
		{"Reserve", func(t *testing.T, k *knowing, c core.Charge, _ *core.Reservation) core.Decision {
			_, d := reserve(t, k.Gate, time.Hour, c)
			return d
		}, false, core.SourceRedis},
		{"a smaller cost", func(t *testing.T, k *knowing, c core.Charge, _ *core.Reservation) core.Decision {
			c.Cost = 0
			return decide(t, k.Gate, c)
		}, true, core.SourceRedis},
		{"Reset", func(t *testing.T, k *knowing, c core.Charge, _ *core.Reservation) core.Decision {
			if err := k.Reset(t.Context(), c.Policy, c.Key); err != nil {
				t.Error(err)
			}
			return decide(t, k.Gate, c)
		}, true, core.SourceRedis},
		{"Cancel", func(t *testing.T, k *knowing, c core.Charge, r *core.Reservation) core.Decision {
			cancel(t, r)
			return decide(t, k.Gate, c)
		}, true, core.SourceRedis},
		{"Settle for less", func(t *testing.T, k *knowing, c core.Charge, r *core.Reservation) core.Decision {
			settle(t, r, 1)
			return decide(t, k.Gate, c)
		}, true, core.SourceRedis},
		{"Settle for more", func(t *testing.T, k *knowing, c core.Charge, r *core.Reservation) core.Decision {
			settle(t, r, 4)
			return decide(t, k.Gate, c)
		}, false, core.SourceRedis},
		{"a raised limit", func(t *testing.T, k *knowing, c core.Charge, _ *core.Reservation) core.Decision {
			d, err := k.Decide(withPlan(t.Context(), 1), c)
			if err != nil {
				t.Error(err)
			}
			return d
		}, true, core.SourceRedis},
		{"another algorithm", func(t *testing.T, k *knowing, c core.Charge, _ *core.Reservation) core.Decision {
			d, err := k.Decide(withPlan(t.Context(), 2), c)
			if err != nil {
				t.Error(err)
			}
			return d
		}, true, core.SourceRedis},
		{"another policy of that name", func(t *testing.T, k *knowing, c core.Charge, _ *core.Reservation) core.Decision {
			c.Policy = limited(t, "p", plans[1])
			return decide(t, k.Gate, c)
		}, true, core.SourceRedis},
		{"Reset by another process, at once", func(t *testing.T, k *knowing, c core.Charge, _ *core.Reservation) core.Decision {
			if err := k.asking.Reset(t.Context(), c.Policy, c.Key); err != nil {
				t.Error(err)
			}
			k.clock.advance(time.Second - time.Microsecond)
			return decide(t, k.Gate, c)
		}, false, core.SourceCache},
		{"Reset by another process, a second later", func(t *testing.T, k *knowing, c core.Charge, _ *core.Reservation) core.Decision {
			if err := k.asking.Reset(t.Context(), c.Policy, c.Key); err != nil {
				t.Error(err)
			}
			k.clock.advance(time.Second)
			return decide(t, k.Gate, c)
		}, true, core.SourceRedis},
		{"what a later denial made void", func(t *testing.T, k *knowing, c core.Charge, r *core.Reservation) core.Decision {
			settle(t, r, 2)
			k.SplitByOutermost()
			full := core.Charge{Policy: limited(t, "full", frozen(1)), Key: newKey(t, "other"), Cost: 1}
			decide(t, k.Gate, full)
			c.Cost = 1
			if d := decide(t, k.Gate, c, full); d.Allowed || !d.At(0).Allowed {
				t.Errorf("not given back: %s", show(d))
			}
			return decide(t, k.Gate, c)
		}, true, core.SourceRedis},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachKnowing(t, func(t *testing.T, k *knowing) {
				c := c(t, 3)
				r, _ := reserve(t, k.Gate, 0, c)
				c.Cost = 1
				decide(t, k.Gate, c)
				if k.asks(func() { decide(t, k.Gate, c) }) {
					t.Error("the denial is not known")
				}
				if d := tt.do(t, k, c, r); d.Allowed != tt.allowed || d.Source != tt.source {
					t.Errorf("%v: %s", d.Source, show(d))
				}
			})
		})
	}
}

// answerHeld holds the answers of a client's commands of one name, after the server has carried
// them out.
type answerHeld struct {
	name    string
	through chan struct{}
	holds   chan struct{}
}

func (l *answerHeld) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *answerHeld) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == l.name {
			l.holds <- struct{}{}
			<-l.through
		}
		return err
	}
}

func (l *answerHeld) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A denial whose answer is late and a reset whose answer is late never hide what was reset.
func TestDenialAndResetAtOnce(t *testing.T) {
	s := redistest.Start(t)
	for _, slow := range []string{"evalsha", "del"} {
		t.Run(slow, func(t *testing.T) {
			client := s.Client(t)
			g := redisGate(t, client, core.Config{Prefix: s.Prefix + slow[:1]})
			c := core.Charge{Policy: limited(t, "p", frozen(1)), Key: newKey(t, "k"), Cost: 1}
			decide(t, g, c)
			if slow == "del" {
				decide(t, g, c)
			}
			l := &answerHeld{slow, make(chan struct{}), make(chan struct{})}
			client.AddHook(l)
			done := make(chan core.Decision, 1)
			reset := func() {
				if err := g.Reset(context.Background(), c.Policy, c.Key); err != nil {
					t.Error(err)
				}
			}
			if slow == "evalsha" {
				go func() { d, _ := g.Decide(context.Background(), c); done <- d }()
				<-l.holds
				reset()
			} else {
				go func() { reset(); done <- core.Decision{} }()
				<-l.holds
				if d := decide(t, g, c); !d.Allowed {
					t.Errorf("during the reset: %s", show(d))
				}
				decide(t, g, c)
			}
			l.through <- struct{}{}
			if d := <-done; d.Allowed {
				t.Errorf("held: %s", show(d))
			}
			if slow == "evalsha" {
				go func() { <-l.holds; l.through <- struct{}{} }()
			}
			d := decide(t, g, c)
			if allowed := slow == "evalsha"; d.Allowed != allowed || d.Source != core.SourceRedis {
				t.Errorf("%v: %s", d.Source, show(d))
			}
		})
	}
}

// While Redis is down, what it denied is denied on, and then the failure mode decides.
func TestDenialWhileRedisIsDown(t *testing.T) {
	s := redistest.Start(t)
	g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
	clock := newClock()
	g.InjectClock(clock.now)
	c := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: frozen(1), OnFailure: core.Open}), Key: newKey(t, "k"), Cost: 1}
	decide(t, g, c)
	decide(t, g, c)
	s.Kill()
	clock.advance(time.Second - time.Microsecond)
	if d := decide(t, g, c); d.Allowed || d.Source != core.SourceCache {
		t.Errorf("within a second: %v, %s", d.Source, show(d))
	}
	clock.advance(time.Microsecond)
	if d, err := g.Decide(t.Context(), c); err != nil || !d.Allowed || d.Source != core.SourceOpen {
		t.Errorf("after it: %v, %v, %s", err, d.Source, show(d))
	}
	// What this process denies by itself is nothing to know.
	c.Policy = limited(t, "q", frozen(1))
	for i := range 3 {
		if d, err := g.Decide(t.Context(), c); err != nil || d.Allowed != (i == 0) || d.Source != core.SourceLocal {
			t.Errorf("%v, %v, %s", err, d.Source, show(d))
		}
	}
}

func TestDenialIsReported(t *testing.T) {
	s := redistest.Start(t)
	var seen []core.Event
	g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, Observe: func(_ context.Context, e core.Event) {
		if e.Kind == core.EventScriptMissing { // of a new server
			return
		}
		d := *e.Decision
		e.Decision = &d
		seen = append(seen, e)
	}})
	c := core.Charge{Policy: limited(t, "p", frozen(1)), Key: newKey(t, "k"), Cost: 2}
	for range 2 {
		decide(t, g, c)
	}
	if e := seen[1]; len(seen) != 2 || e.Kind != core.EventDecide || e.Err != nil || e.Decision.Allowed || e.Decision.Source != core.SourceCache {
		t.Errorf("%+v", seen)
	}
	if core.SourceCache.String() != "cache" {
		t.Error(core.SourceCache)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.Decide(ctx, c); err == nil {
		t.Error("a cancelled caller is answered")
	}
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := g.Decide(t.Context(), c); err == nil {
		t.Error("a closed gate answers")
	}
}

func TestDenialsAreBounded(t *testing.T) {
	eachKnowing(t, func(t *testing.T, k *knowing) {
		p := limited(t, "p", frozen(1))
		for i := range rounds(t, 20_000) {
			decide(t, k.Gate, core.Charge{Policy: p, Key: newKey(t, strconv.Itoa(i)), Cost: 2})
		}
		if n := k.KnownDenials(); n == 0 || n > 4096 {
			t.Errorf("%d denials are known", n)
		}
	})
}

// Beside one that asks each time, a gate that knows denials never allows what is denied. It never
// denies what has room, but for up to a second where another process gave back or the server's
// clock leapt.
func TestKnownDenialsAgree(t *testing.T) {
	policies := []*core.Policy{
		limited(t, "bucket", core.TokenBucket{Rate: 3, Per: time.Second, Burst: 4}),
		newPolicy(t, core.PolicyConfig{Name: "plan", Algorithm: plans[0], For: changing(
			core.TokenBucket{Rate: 2, Per: time.Second, Burst: 3}, core.TokenBucket{Rate: 2, Per: time.Second, Burst: 6}, core.TokenBucket{Rate: 4, Per: time.Second, Burst: 3})}),
		limited(t, "leaky", core.LeakyBucket{Rate: 7, Per: time.Second, Capacity: 3}),
		limited(t, "window", core.FixedWindow{Limit: 3, Window: 700 * time.Millisecond}),
		newPolicy(t, core.PolicyConfig{Name: "window-plan", Algorithm: plans[0], For: changing(
			core.FixedWindow{Limit: 2, Window: time.Second, FromFirst: true}, core.FixedWindow{Limit: 4, Window: time.Second, FromFirst: true})}),
		limited(t, "counters", core.SlidingWindow{Limit: 3, Window: 800 * time.Millisecond}),
		limited(t, "buckets", core.SlidingWindow{Limit: 3, Window: 800 * time.Millisecond, Buckets: 8}),
		limited(t, "log", core.SlidingLog{Windows: []core.Window{{2, 300 * time.Millisecond}, {5, 2 * time.Second}}}),
		newPolicy(t, core.PolicyConfig{Name: "shadow", Algorithm: core.PerSecond(2), Shadow: true}),
		limited(t, "none", core.DenyAll{}),
	}
	eachKnowing(t, func(t *testing.T, k *knowing) {
		var operations []string // the first are drawn most
		for range 20 {
			operations = append(operations, "decide", "decide", "time")
		}
		operations = append(operations, "reserve", "reserve", "correct", "correct", "reset", "leap")
		known, run := 0, 0
		server := newClock()
		k.InjectServerClock(server.now)
		k.asking.InjectServerClock(server.now)
		rapid.Check(t, func(rt *rapid.T) {
			run++
			var held []*core.Reservation
			stale := int64(0) // until when another process may have given back
			used := rapid.Permutation(policies).Draw(rt, "policies")[:3]
			for range rounds(t, 200) {
				ctx := withPlan(t.Context(), rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(rt, "plan"))
				var charges []core.Charge
				for i := range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(rt, "charges") {
					charges = append(charges, core.Charge{
						Policy: used[i], Key: newKey(t, fmt.Sprint(run)), Cost: rapid.SampledFrom([]int64{1, 1, 1, 2, 3, 5, 0}).Draw(rt, "cost"),
					})
				}
				gate := k.Gate
				other := rapid.IntRange(0, 9).Draw(rt, "other") == 9
				if other {
					gate = k.asking
				}
				switch op := rapid.SampledFrom(operations).Draw(rt, "operation"); op {
				case "time":
					d := rapid.SampledFrom([]int64{1, 20_000, 100_000, 166_666, 400_000, 1_000_000}).Draw(rt, "microseconds")
					k.clock.micros.Add(d)
					server.micros.Add(d)
				case "leap":
					server.micros.Add(rapid.SampledFrom([]int64{-2_000_000, -30_000, 30_000, 400_000, 2_000_000}).Draw(rt, "leap"))
					stale = k.clock.now() + 1_000_000
				case "reserve":
					r, _, err := gate.Reserve(ctx, rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(rt, "wait"), charges...)
					if err != nil {
						rt.Fatal(err)
					}
					if r != nil && gate == k.Gate {
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
					if err := r.Settle(ctx, actual...); err != nil {
						rt.Fatal(err)
					}
				case "reset":
					for _, c := range charges {
						if err := gate.Reset(ctx, c.Policy, c.Key); err != nil {
							rt.Fatal(err)
						}
					}
					held = nil
					if other {
						stale = k.clock.now() + 1_000_000
					}
				case "decide":
					want, err := k.asking.Peek(ctx, charges...)
					if err != nil {
						rt.Fatal(err)
					}
					got, err := k.Decide(ctx, charges...)
					if err != nil {
						rt.Fatal(err)
					}
					if got.Allowed && !want.Allowed || got.Allowed != want.Allowed && k.clock.now() >= stale {
						rt.Fatalf("at %d: %v %s\nbut %s", k.clock.now(), got.Source, show(got), show(want))
					}
					if got.Source != core.SourceCache || k.clock.now() < stale {
						continue
					}
					known++
					wait := got.RetryAfter()
					if w := want.RetryAfter(); wait > w {
						rt.Fatalf("wait %v, but %v", wait, w)
					}
					for i := range got.Len() {
						if r, w := got.At(i), want.At(i); r.Known && (r.Remaining != w.Remaining || r.Limit != w.Limit || w.Known != r.Known) {
							rt.Fatalf("%s\nbut %s", show(got), show(want))
						}
					}
				}
			}
		})
		if known < 10 {
			t.Errorf("only %d denials were known", known)
		}
		t.Logf("%d denials were known", known)
	})
}
