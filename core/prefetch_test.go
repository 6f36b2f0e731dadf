package core_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// ahead is a policy of 100 units, of which a process takes 10 ahead.
func ahead(t testing.TB, limit core.Algorithm) *core.Policy {
	t.Helper()
	return newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: limit, Prefetch: 10})
}

// prefetchable are limits of 100 units of each algorithm that can be taken ahead of, none of which is free again within seconds.
var prefetchable = []struct {
	name      string
	algorithm core.Algorithm
}{
	{"token bucket", core.TokenBucket{Rate: 1, Per: time.Hour, Burst: 100}},
	{"token bucket of broken microseconds", core.TokenBucket{Rate: 7, Per: 100 * time.Hour, Burst: 100}},
	{"frozen", frozen(100)},
	{"leaky bucket", core.LeakyBucket{Rate: 1, Per: time.Hour, Capacity: 100}},
	{"fixed window", core.FixedWindow{Limit: 100, Window: 24 * time.Hour}},
	{"window from first", core.FixedWindow{Limit: 100, Window: 24 * time.Hour, FromFirst: true}},
	{"calendar", core.Calendar{Limit: 100, Every: core.Day, In: time.UTC}},
}

func TestPrefetchIsValidated(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg  core.PolicyConfig
		want string
	}{
		"as much as the limit": {core.PolicyConfig{Algorithm: frozen(9), Prefetch: 9}, ""},
		"one":                  {core.PolicyConfig{Algorithm: frozen(9), Prefetch: 1}, ""},
		"more than the limit":  {core.PolicyConfig{Algorithm: frozen(9), Prefetch: 10}, "at most the limit, 9"},
		"less than none":       {core.PolicyConfig{Algorithm: frozen(9), Prefetch: -1}, "must not be negative"},
		"a shadow":             {core.PolicyConfig{Algorithm: frozen(9), Prefetch: 2, Shadow: true}, "only watches"},
		"a log":                {core.PolicyConfig{Algorithm: core.SlidingLog{Windows: []core.Window{{9, time.Hour}}}, Prefetch: 2}, "is for"},
		"two counters":         {core.PolicyConfig{Algorithm: core.SlidingWindow{Limit: 9, Window: time.Hour}, Prefetch: 2}, "is for"},
		"buckets":              {core.PolicyConfig{Algorithm: core.SlidingWindow{Limit: 9, Window: time.Hour, Buckets: 10}, Prefetch: 2}, "is for"},
		"nothing to count":     {core.PolicyConfig{Algorithm: core.Unlimited{}, Prefetch: 2}, "is for"},
		"no algorithm":         {core.PolicyConfig{Prefetch: 2}, "Algorithm is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.cfg.Name = "p"
			_, err := core.NewPolicy(tt.cfg)
			if fmt.Sprint(err) == "<nil>" != (tt.want == "") || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestPrefetchTakesNoRoundTrip(t *testing.T) {
	for _, l := range prefetchable {
		t.Run(l.name, func(t *testing.T) {
			eachKnowing(t, func(t *testing.T, k *knowing) {
				c := core.Charge{Policy: ahead(t, l.algorithm), Key: newKey(t, "k"), Cost: 1}
				var asked []int
				for i := range 110 {
					var d core.Decision
					if k.asks(func() { d = decide(t, k.Gate, c) }) {
						asked = append(asked, i)
					}
					if d.Allowed != (i < 100) {
						t.Fatalf("%d: %v, %s", i, d.Source, show(d))
					}
					r := d.At(0)
					if here := d.Source == core.SourcePrefetch; here == (r.Known || d.Source == core.SourceRedis) && i < 100 || r.Limit != 100 || r.Source != d.Source {
						t.Errorf("%d: %v, %s", i, d.Source, show(d))
					}
				}
				// The first alone, then ten at a time, and when none is left a denial.
				if want := []int{0, 1, 11, 21, 31, 41, 51, 61, 71, 81, 91, 100}; fmt.Sprint(asked) != fmt.Sprint(want) {
					t.Errorf("Redis was asked for %v, want %v", asked, want)
				}
				if core.SourcePrefetch.String() != "prefetch" {
					t.Error(core.SourcePrefetch)
				}
			})
		})
	}
}

// What is not used within a second is given back, and so is all at Close.
func TestPrefetchIsGivenBack(t *testing.T) {
	for _, l := range prefetchable {
		t.Run(l.name, func(t *testing.T) {
			eachKnowing(t, func(t *testing.T, k *knowing) {
				c := core.Charge{Policy: ahead(t, l.algorithm), Key: newKey(t, "k"), Cost: 1}
				hold := func(spent int64) {
					t.Helper()
					for k.Ahead() == 0 {
						decide(t, k.Gate, c)
						spent++
					}
					if n := used(t, k.asking, c.Policy, c.Key); n != spent+9 || k.Ahead() != 9 {
						t.Fatalf("%d are used, %d ahead", n, k.Ahead())
					}
				}
				hold(0)
				k.clock.advance(time.Second - time.Microsecond)
				k.GiveBack()
				if d := decide(t, k.Gate, c); d.Source != core.SourcePrefetch {
					t.Errorf("%v: %s", d.Source, show(d))
				}
				k.clock.advance(time.Microsecond)
				if d := decide(t, k.Gate, c); d.Source != core.SourceRedis || !d.Allowed {
					t.Errorf("%v: %s", d.Source, show(d))
				}
				if k.Ahead() != 8 {
					t.Errorf("%d ahead", k.Ahead())
				}
				k.GiveBack()
				if n := used(t, k.asking, c.Policy, c.Key); n != 4 || k.Ahead() != 0 {
					t.Errorf("%d are used, %d ahead", n, k.Ahead())
				}
				hold(4)
				if err := k.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if n := used(t, k.asking, c.Policy, c.Key); n != 6 {
					t.Errorf("%d are used after Close", n)
				}
			})
		})
	}
}

// The gate itself gives back what nobody uses.
func TestPrefetchIsTended(t *testing.T) {
	s := redistest.Start(t)
	g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
	c := core.Charge{Policy: ahead(t, frozen(100)), Key: newKey(t, "k"), Cost: 1}
	decide(t, g, c)
	decide(t, g, c)
	for start := time.Now(); used(t, g, c.Policy, c.Key) > 2; {
		if time.Since(start) > patient {
			t.Fatal("nothing is given back")
		}
	}
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// Units of a window are not used in the next.
func TestPrefetchEndsWithItsWindow(t *testing.T) {
	for _, l := range []core.Algorithm{
		core.FixedWindow{Limit: 20, Window: 600 * time.Millisecond}, core.FixedWindow{Limit: 20, Window: 600 * time.Millisecond, FromFirst: true},
		core.Calendar{Limit: 20, Every: core.Minute, In: time.UTC},
	} {
		eachKnowing(t, func(t *testing.T, k *knowing) {
			c := core.Charge{Policy: ahead(t, l), Key: newKey(t, "k"), Cost: 1}
			for window := range 5 {
				asked := peek(t, k.asking, c)
				r := asked.At(0)
				if r.Used != 0 {
					t.Fatalf("window %d: %s", window, show(asked))
				}
				n := 0
				for decide(t, k.Gate, c).Allowed {
					if n++; n == 5 { // half of what was taken is used near the window's end
						asked := peek(t, k.asking, c)
						r := asked.At(0)
						k.clock.advance(r.ResetAfter - time.Microsecond)
					}
				}
				if n > 20 {
					t.Errorf("%T, window %d: %d of 20 admitted", l, window, n)
				}
				k.clock.advance(time.Microsecond)
			}
		})
	}
	eachKnowing(t, func(t *testing.T, k *knowing) {
		c := core.Charge{Policy: ahead(t, core.FixedWindow{Limit: 20, Window: 500 * time.Millisecond, FromFirst: true}), Key: newKey(t, "k"), Cost: 1}
		decide(t, k.Gate, c)
		decide(t, k.Gate, c)
		k.clock.advance(500 * time.Millisecond)
		if d := decide(t, k.Gate, c); k.Ahead() == 0 || d.Source != core.SourceRedis {
			t.Errorf("%v, %d ahead", d.Source, k.Ahead())
		}
	})
}

// Nor are they where a debt is to be paid in the next.
func TestPrefetchEndsWithItsWindowInDebt(t *testing.T) {
	eachKnowing(t, func(t *testing.T, k *knowing) {
		window := core.FixedWindow{Limit: 10, Window: 600 * time.Millisecond, FromFirst: true}
		raised := window
		raised.Limit = 20
		c := core.Charge{
			Policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: window, For: changing(window, raised), Prefetch: 10}), Key: newKey(t, "k"), Cost: 10,
		}
		r, _ := reserve(t, k.Gate, 0, c)
		settle(t, r, 12)
		ctx := withPlan(t.Context(), 1)
		c.Cost = 1
		for _, source := range []core.Source{core.SourceRedis, core.SourceRedis, core.SourcePrefetch} {
			if d, err := k.Decide(ctx, c); err != nil || !d.Allowed || d.Source != source {
				t.Fatalf("%v, %v: %s", err, d.Source, show(d))
			}
		}
		k.clock.advance(600 * time.Millisecond)
		if d, err := k.Decide(ctx, c); err != nil || d.Source != core.SourceRedis {
			t.Errorf("%v, %v: %s", err, d.Source, show(d))
		}
	})
}

// A refilling bucket admits in any time at most its bound, and what was held when it began.
func TestPrefetchOfABucket(t *testing.T) {
	const gates, burst, rate = 2, 30, 20
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		clock := newClock()
		p := ahead(t, core.TokenBucket{Rate: rate, Per: time.Second, Burst: burst})
		key := newKey(t, "k")
		var all []*core.Gate
		for range gates {
			g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
			g.InjectClock(clock.now)
			all = append(all, g)
		}
		type step struct{ at, held, admitted int64 } // both until then
		var steps []step
		var n int64
		for range rounds(t, 4000) {
			clock.advance([]time.Duration{0, 0, 0, 20 * time.Millisecond, 80 * time.Millisecond, time.Second}[rand.IntN(6)])
			for _, g := range all {
				g.GiveBack()
			}
			steps = append(steps, step{clock.now(), all[0].Ahead() + all[1].Ahead(), n})
			c := core.Charge{Policy: p, Key: key, Cost: 1 + rand.Int64N(3)}
			if d := decide(t, all[rand.IntN(gates)], c); d.Allowed {
				n += c.Cost
			}
			for _, from := range steps[max(0, len(steps)-60):] {
				if got, most := n-from.admitted, burst+from.held+rate*(clock.now()-from.at)/1_000_000; got > most {
					t.Fatalf("%d admitted in %dus, at most %d", got, clock.now()-from.at, most)
				}
			}
		}
	})
}

// Several processes never admit more than the limit, and what one does not use another gets.
func TestPrefetchIsExact(t *testing.T) {
	const gates, callers = 4, 8
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		for _, l := range prefetchable {
			for _, split := range []bool{false, true} {
				clock := newClock()
				p, key := ahead(t, l.algorithm), newKey(t, l.name, fmt.Sprint(split))
				var all []*core.Gate
				for range gates {
					g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
					g.InjectClock(clock.now)
					if split {
						g.SplitByOutermost()
					}
					peek(t, g, core.Charge{Policy: p, Key: key, Cost: 1}) // the calendar knows its period now
					all = append(all, g)
				}
				var admitted, here atomic.Int64
				for range 6 {
					var wg sync.WaitGroup
					for _, g := range all {
						for range callers {
							wg.Go(func() {
								for range 5 {
									cost := 1 + rand.Int64N(3)
									d, err := g.Decide(context.Background(), core.Charge{Policy: p, Key: key, Cost: cost})
									if err != nil || d.Cause != nil {
										t.Error(err, d.Cause)
									}
									if d.Allowed {
										admitted.Add(cost)
									}
									if d.Source == core.SourcePrefetch {
										here.Add(1)
									}
								}
							})
						}
					}
					wg.Wait()
					if s.Real {
						do(t, s.Client(t), "SCRIPT", "FLUSH")
					}
				}
				if n := admitted.Load(); n > 100 {
					t.Errorf("%s: %d of 100 admitted", l.name, n)
				}
				clock.advance(time.Second)
				for _, g := range all {
					g.GiveBack()
				}
				if n := used(t, all[0], p, key); n != admitted.Load() {
					t.Errorf("%s: %d admitted, %d used", l.name, admitted.Load(), n)
				}
				for decide(t, all[0], core.Charge{Policy: p, Key: key, Cost: 1}).Allowed {
					admitted.Add(1)
				}
				if n := admitted.Load(); n != 100 {
					t.Errorf("%s: %d of 100 admitted in the end", l.name, n)
				}
				if here.Load() == 0 {
					t.Errorf("%s: none by what was taken ahead", l.name)
				}
			}
		}
	})
}

// What cannot be served by what was taken ahead, or must not be, is asked of Redis.
func TestPrefetchIsNotFor(t *testing.T) {
	plan := core.PolicyConfig{Name: "p", Algorithm: frozen(100), Prefetch: 10, For: changing(frozen(100), frozen(200), core.SlidingWindow{Limit: 100, Window: time.Hour})}
	tests := []struct {
		name string
		call func(t *testing.T, k *knowing, c core.Charge) core.Decision
	}{
		{"Peek", func(t *testing.T, k *knowing, c core.Charge) core.Decision { return peek(t, k.Gate, c) }},
		{"AtMost", func(t *testing.T, k *knowing, c core.Charge) core.Decision {
			_, d, err := k.AtMost(t.Context(), c)
			if err != nil {
				t.Error(err)
			}
			return d
		}},
		{"Reserve", func(t *testing.T, k *knowing, c core.Charge) core.Decision {
			_, d := reserve(t, k.Gate, 0, c)
			return d
		}},
		{"Charge", func(t *testing.T, k *knowing, c core.Charge) core.Decision {
			r, d, err := k.Charge(t.Context(), c)
			if err != nil {
				t.Error(err)
			}
			cancel(t, r)
			return d
		}},
		{"a charge beside", func(t *testing.T, k *knowing, c core.Charge) core.Decision {
			return decide(t, k.Gate, c, core.Charge{Policy: limited(t, "q", frozen(100)), Key: c.Key, Cost: 1})
		}},
		{"no cost", func(t *testing.T, k *knowing, c core.Charge) core.Decision {
			c.Cost = 0
			return decide(t, k.Gate, c)
		}},
		{"more than was taken", func(t *testing.T, k *knowing, c core.Charge) core.Decision {
			c.Cost = 10
			return decide(t, k.Gate, c)
		}},
		{"another key", func(t *testing.T, k *knowing, c core.Charge) core.Decision {
			c.Key = newKey(t, "other")
			return decide(t, k.Gate, c)
		}},
		{"another policy", func(t *testing.T, k *knowing, c core.Charge) core.Decision {
			c.Policy = newPolicy(t, plan)
			return decide(t, k.Gate, c)
		}},
		{"another limit", func(t *testing.T, k *knowing, c core.Charge) core.Decision {
			d, err := k.Decide(withPlan(t.Context(), 1), c)
			if err != nil {
				t.Error(err)
			}
			return d
		}},
		{"another algorithm", func(t *testing.T, k *knowing, c core.Charge) core.Decision {
			d, err := k.Decide(withPlan(t.Context(), 2), c)
			if err != nil {
				t.Error(err)
			}
			return d
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachKnowing(t, func(t *testing.T, k *knowing) {
				c := core.Charge{Policy: newPolicy(t, plan), Key: newKey(t, "k"), Cost: 1}
				decide(t, k.Gate, c)
				decide(t, k.Gate, c)
				if k.Ahead() != 9 {
					t.Fatalf("%d ahead", k.Ahead())
				}
				if d := tt.call(t, k, c); d.Source != core.SourceRedis || !d.Allowed {
					t.Errorf("%v: %s", d.Source, show(d))
				}
				if d, err := k.Decide(t.Context(), core.Charge{Policy: c.Policy, Key: c.Key, Cost: -1}); !errors.Is(err, core.ErrCharge) {
					t.Error(show(d), err)
				}
				if k.Ahead() != 9 {
					t.Errorf("%d ahead", k.Ahead())
				}
			})
		})
	}
}

// A request that needs more than is left gives that back first, so that nobody is denied for what his process holds.
func TestPrefetchGivesBackTheRest(t *testing.T) {
	for _, l := range prefetchable {
		t.Run(l.name, func(t *testing.T) {
			eachKnowing(t, func(t *testing.T, k *knowing) {
				c := core.Charge{Policy: ahead(t, l.algorithm), Key: newKey(t, "k"), Cost: 80}
				decide(t, k.Gate, c)
				for _, c.Cost = range []int64{1, 4, 4, 5, 2, 1, 2, 1} { // 100
					if d := decide(t, k.Gate, c); !d.Allowed {
						t.Errorf("%d: %s", c.Cost, show(d))
					}
				}
				if d := decide(t, k.Gate, c); d.Allowed {
					t.Error(show(d))
				}
				if n := used(t, k.asking, c.Policy, c.Key); n != 100 || k.Ahead() != 0 {
					t.Errorf("%d are used, %d ahead", n, k.Ahead())
				}
			})
		})
	}
}

// What callers wanted who gave up while they waited is held too, but never more than as much again.
func TestPrefetchIsBounded(t *testing.T) {
	s := redistest.Start(t)
	client := s.Client(t)
	h := &held{through: make(chan struct{})}
	g := redisGate(t, client, core.Config{Prefix: s.Prefix})
	p := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: core.FixedWindow{Limit: 100_000, Window: time.Hour, FromFirst: true}, Prefetch: 10})
	c := core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 1}
	decide(t, g, c)
	client.AddHook(h)
	var callers sync.WaitGroup
	ctx, giveUp := context.WithCancel(t.Context())
	ask := func(ctx context.Context) { callers.Go(func() { _, _ = g.Decide(ctx, c) }) }
	ask(t.Context())
	for h.waiting.Load() != 1 {
		time.Sleep(10 * time.Microsecond)
	}
	for range 100 {
		ask(ctx)
	}
	for g.AheadWanted() != 100 {
		time.Sleep(10 * time.Microsecond)
	}
	h.through <- struct{}{}
	for h.waiting.Load() != 1 { // for those who are left
		time.Sleep(10 * time.Microsecond)
	}
	giveUp()
	h.through <- struct{}{}
	callers.Wait()
	if n := g.Ahead(); n > 20 {
		t.Errorf("%d ahead", n)
	}
}

// Where a reset fails, what was taken ahead is given back as ever.
func TestPrefetchOutlivesAFailedReset(t *testing.T) {
	s := redistest.Start(t)
	client := s.Client(t)
	g, other := redisGate(t, client, core.Config{Prefix: s.Prefix}), redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
	c := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: frozen(100), Prefetch: 50}), Key: newKey(t, "k"), Cost: 1}
	decide(t, g, c)
	decide(t, g, c)
	client.AddHook(&refused{command: "del"})
	if err := g.Reset(t.Context(), c.Policy, c.Key); err == nil {
		t.Error("the reset did not fail")
	}
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := used(t, other, c.Policy, c.Key); n != 2 {
		t.Errorf("%d used", n)
	}
}

// refused lets a command fail.
type refused struct{ command string }

func (r *refused) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *refused) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == r.command {
			return errBroken
		}
		return next(ctx, cmd)
	}
}

func (r *refused) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A reset makes void what was taken ahead, also what is on its way, and nothing of it is given back.
func TestPrefetchIsReset(t *testing.T) {
	s := redistest.Start(t)
	for name, play := range map[string]func(t *testing.T, g *core.Gate, fills, resets *answerHeld, fill, reset func()){
		"what is there": func(_ *testing.T, _ *core.Gate, fills, resets *answerHeld, fill, reset func()) {
			close(fills.through)
			close(resets.through)
			fill()
			fill()
			reset()
		},
		"while it comes": func(_ *testing.T, _ *core.Gate, fills, resets *answerHeld, fill, reset func()) {
			close(resets.through)
			go func() { <-fills.holds; fills.through <- struct{}{} }()
			fill()
			var wg sync.WaitGroup
			wg.Go(fill)
			<-fills.holds
			wg.Go(reset)
			close(fills.through)
			wg.Wait()
		},
		"begun before it came": func(t *testing.T, g *core.Gate, fills, resets *answerHeld, fill, reset func()) {
			var first, second sync.WaitGroup
			first.Go(reset)
			<-resets.holds
			go func() { <-fills.holds; fills.through <- struct{}{} }()
			fill()
			second.Go(fill)
			<-fills.holds
			close(resets.through)
			first.Wait()
			close(fills.through)
			second.Wait()
			if g.Ahead() != 0 {
				t.Errorf("%d ahead", g.Ahead())
			}
			reset()
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := s.Client(t)
			g := redisGate(t, client, core.Config{Prefix: s.Prefix})
			clock := newClock()
			g.InjectClock(clock.now)
			c := core.Charge{Policy: ahead(t, core.FixedWindow{Limit: 100, Window: 24 * time.Hour}), Key: newKey(t, name), Cost: 1}
			peek(t, g, c) // so that the script is there
			fills := &answerHeld{"evalsha", make(chan struct{}), make(chan struct{}, 10)}
			resets := &answerHeld{"del", make(chan struct{}), make(chan struct{}, 10)}
			client.AddHook(fills)
			client.AddHook(resets)
			play(t, g, fills, resets, func() {
				if d, err := g.Decide(context.Background(), c); err != nil || !d.Allowed {
					t.Errorf("%v: %s", err, show(d))
				}
			}, func() {
				if err := g.Reset(context.Background(), c.Policy, c.Key); err != nil {
					t.Error(err)
				}
			})
			if g.Ahead() != 0 {
				t.Errorf("%d ahead", g.Ahead())
			}
			clock.advance(time.Second)
			g.GiveBack()
			c.Cost = 100
			for _, allowed := range []bool{true, false} {
				if d := decide(t, g, c); d.Allowed != allowed {
					t.Error(show(d))
				}
			}
		})
	}
}

// While Redis is down, what was taken ahead is used for as long as it may be, and then the failure mode decides.
func TestPrefetchWhileRedisIsDown(t *testing.T) {
	s := redistest.Start(t)
	var failed atomic.Int64
	g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, Timeout: time.Second, Observe: func(_ context.Context, e core.Event) {
		if e.Operation == "give" && e.Err != nil {
			failed.Add(1)
		}
	}})
	clock := newClock()
	g.InjectClock(clock.now)
	c := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: frozen(100), Prefetch: 10, OnFailure: core.Closed}), Key: newKey(t, "k"), Cost: 1}
	decide(t, g, c)
	decide(t, g, c)
	s.Kill()
	for range 8 {
		if d := decide(t, g, c); !d.Allowed || d.Source != core.SourcePrefetch {
			t.Errorf("%v: %s", d.Source, show(d))
		}
	}
	clock.advance(time.Second)
	if d, err := g.Decide(t.Context(), c); err != nil || d.Allowed || d.Source != core.SourceClosed {
		t.Errorf("%v, %v: %s", err, d.Source, show(d))
	}
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if g.Ahead() != 0 || failed.Load() == 0 {
		t.Errorf("%d ahead, %d failures told", g.Ahead(), failed.Load())
	}
}
