package core_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/request"
)

func charge(t testing.TB, g *core.Gate, charges ...core.Charge) *core.Reservation {
	t.Helper()
	r, d, err := g.Charge(t.Context(), charges...)
	if r == nil || err != nil {
		t.Fatalf("%s, %v", show(d), err)
	}
	return r
}

// renew renews a reservation, and wants those charges gone.
func renew(t *testing.T, r *core.Reservation, want uint32) {
	t.Helper()
	if gone, err := r.Renew(); gone != want || err != nil {
		t.Errorf("charges %b are gone, want %b: %v", gone, want, err)
	}
}

func TestHoldExpires(t *testing.T) {
	t.Parallel()
	settled := func(after time.Duration, actual int64) func(*testing.T, *core.Reservation, *core.ManualClock) {
		return func(t *testing.T, r *core.Reservation, c *core.ManualClock) {
			c.Advance(after)
			settle(t, r, actual)
			c.Advance(time.Hour)
		}
	}
	tests := []struct {
		name    string
		do      func(t *testing.T, r *core.Reservation, c *core.ManualClock)
		used    int64
		expired bool
	}{
		{"nothing is settled", func(_ *testing.T, _ *core.Reservation, c *core.ManualClock) { c.Advance(time.Minute) }, 0, false},
		{"the hold lasts", func(_ *testing.T, _ *core.Reservation, c *core.ManualClock) {
			c.Advance(time.Minute - time.Microsecond)
		}, 4, false},
		{"settled before", settled(30*time.Second, 3), 3, false},
		{"settled for what was spent", settled(0, 4), 4, false},
		{"settled before for more", settled(0, 15), 15, false},
		{"settled after", settled(time.Hour, 3), 3, true},
		{"settled after for more", settled(time.Hour, 15), 15, true},
		{"cancelled before", func(t *testing.T, r *core.Reservation, c *core.ManualClock) {
			cancel(t, r)
			c.Advance(time.Hour)
		}, 0, false},
		{"cancelled after", func(t *testing.T, r *core.Reservation, c *core.ManualClock) {
			c.Advance(time.Hour)
			cancel(t, r)
		}, 0, true},
		{"renewed", func(t *testing.T, r *core.Reservation, c *core.ManualClock) {
			for range 3 {
				c.Advance(59 * time.Second)
				renew(t, r, 0)
			}
			c.Advance(59 * time.Second)
		}, 4, false},
		{"renewed, and then left", func(t *testing.T, r *core.Reservation, c *core.ManualClock) {
			c.Advance(59 * time.Second)
			renew(t, r, 0)
			c.Advance(time.Minute)
		}, 0, false},
		{"renewed too late", func(t *testing.T, r *core.Reservation, c *core.ManualClock) {
			c.Advance(time.Minute)
			renew(t, r, 1)
		}, 0, true},
		{"the clock steps back before a renewal", func(t *testing.T, r *core.Reservation, c *core.ManualClock) {
			c.Advance(-time.Minute)
			renew(t, r, 0)
			c.Advance(time.Minute + 59*time.Second)
		}, 4, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			eachGateObserved(t, func(t *testing.T, g *core.Gate, c *core.ManualClock, expired *atomic.Int64) {
				p, key := heldFor(t, time.Minute), newKey(t, "k")
				r := charge(t, g, core.Charge{Policy: p, Key: key, Cost: 4})
				test.do(t, r, c)
				wantUsed(t, g, p, key, test.used)
				gatetest.Equal(t, expired.Load() > 0, test.expired, "told of an expired hold")
			})
		})
	}
}

// eachGateObserved is eachGate, and counts the events of expired holds.
func eachGateObserved(t *testing.T, f func(t *testing.T, g *core.Gate, c *core.ManualClock, expired *atomic.Int64)) {
	t.Helper()
	eachOpen(t, func(t *testing.T, c *core.ManualClock, open func(core.Config) *core.Gate) {
		var n atomic.Int64
		f(t, open(core.Config{Observe: func(_ context.Context, e core.Event) {
			if isOp(e, core.OpHoldExpired) {
				n.Add(1)
			}
		}}), c, &n)
	})
}

// Of several charges only those under a policy with a Hold expire.
func TestOnlyHeldChargesExpire(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		budget, key := heldFor(t, time.Minute), newKey(t, "k")
		requests := newPolicy(t, core.PolicyConfig{Name: "requests", Algorithm: frozen(10)})
		r := charge(t, g,
			core.Charge{Policy: requests, Key: key, Cost: 1}, core.Charge{Policy: budget, Key: key, Cost: 4})
		decide(t, g, core.Charge{Policy: budget, Key: key, Cost: 2}) // which nothing holds
		c.Advance(time.Hour)
		wantUsed(t, g, requests, key, 1)
		wantUsed(t, g, budget, key, 2)
		settle(t, r, 0, 5)
		wantUsed(t, g, requests, key, 0)
		wantUsed(t, g, budget, key, 7)
	})
}

// What a slot denies is not held: a request whose later slot denies leaves no hold behind.
func TestDeniedRequestHoldsNothing(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g, client := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix}), s.Client(t)
		g.SplitByOutermost()
		p := heldFor(t, time.Minute)
		full, other := newKey(t, "full"), newKey(t, "other")
		decide(t, g, core.Charge{Policy: p, Key: full, Cost: 10})
		r, d, err := g.Charge(t.Context(),
			core.Charge{Policy: p, Key: other, Cost: 4}, core.Charge{Policy: p, Key: full, Cost: 1})
		if r != nil || d.Allowed || err != nil {
			t.Fatal(show(d), err)
		}
		wantUsed(t, g, p, other, 0)
		for _, name := range client.Keys(t.Context(), s.Prefix+"*"+request.HoldsSuffix).Val() {
			t.Errorf("%s is left", name)
		}
	})
}

func TestReservationIsRenewedUntilSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memoryGate(t, core.Config{})
		p, key := heldFor(t, 3*time.Second), newKey(t, "k")
		ctx, cancel := context.WithCancel(t.Context())
		r, _, err := g.Charge(ctx, core.Charge{Policy: p, Key: key, Cost: 4})
		noError(t, err)
		cancel() // as that of a request before its deferred Settle
		time.Sleep(time.Hour)
		wantUsed(t, g, p, key, 4)
		settle(t, r, 1)
		time.Sleep(time.Hour)
		wantUsed(t, g, p, key, 1)
	})
}

// What a reservation holds goes back if the program drops it.
func TestDroppedReservationExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memoryGate(t, core.Config{})
		p, key := heldFor(t, 3*time.Second), newKey(t, "k")
		charge(t, g, core.Charge{Policy: p, Key: key, Cost: 4})
		for range 3 {
			runtime.GC()
		}
		time.Sleep(3 * time.Second)
		wantUsed(t, g, p, key, 0)
	})
}

// What a reservation holds goes back if the Gate is closed before.
func TestReservationOfClosedGateExpires(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
		p, key := heldFor(t, 3*time.Millisecond), newKey(t, "k")
		r := charge(t, g, core.Charge{Policy: p, Key: key, Cost: 4})
		noError(t, g.Close(t.Context()))
		other := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
		eventually(t, "the hold has ended", func() bool { return used(t, other, p, key) == 0 })
		runtime.KeepAlive(r)
	})
}

// A hold goes back under the limit of the moment, whatever limit it was charged under.
func TestHoldExpiresUnderAnotherLimit(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		p := newPolicy(t, core.PolicyConfig{Name: "p", Hold: time.Second, Algorithm: changing(
			core.TokenBucket{Rate: 1009, Per: time.Hour, Burst: 30}, core.TokenBucket{Rate: 7, Per: time.Hour, Burst: 30},
		)})
		key := newKey(t, "k")
		for i := range 20 {
			charge := under(i%2, core.Charge{Policy: p, Key: key, Cost: 1})[0]
			short, d, err := g.Charge(t.Context(), charge)
			if short == nil {
				t.Fatal(show(d), err)
			}
			c.Advance(900 * time.Millisecond)
			late, d, err := g.Charge(t.Context(), charge)
			if late == nil {
				t.Fatal(show(d), err)
			}
			c.Advance(200 * time.Millisecond)
			noError(t, late.Settle(t.Context(), 0))
		}
		c.Advance(time.Minute)
		d, err := g.Peek(t.Context(), under(0, core.Charge{Policy: p, Key: key, Cost: 1})...)
		if err != nil || d.At(0).Used > 1 { // a part of a token may be left of each change
			t.Errorf("%s, %v", show(d), err)
		}
	})
}

// What Wait spends is spent for good, because nobody can settle it.
func TestWaitHoldsNothing(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		p, key := heldFor(t, time.Minute), newKey(t, "k")
		l := gatetest.Must(core.NewLimiter(g, p))(t)
		gatetest.Must(l.WaitN(t.Context(), key, 4))(t)
		c.Advance(time.Hour)
		wantUsed(t, g, p, key, 4)
	})
}

// A charge whose hold is gone, such as after a Reset, does not end that of the others.
func TestRenewalGoesOnForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memoryGate(t, core.Config{})
		user, tenant := newKey(t, "u"), newKey(t, "t")
		p := heldFor(t, 3*time.Second)
		r := charge(t, g, core.Charge{Policy: p, Key: user, Cost: 4}, core.Charge{Policy: p, Key: tenant, Cost: 9})
		worked(t, g.Reset(t.Context(), core.Charge{Policy: p, Key: user}))
		time.Sleep(time.Hour)
		wantUsed(t, g, p, tenant, 9)
		renew(t, r, 1)
		settle(t, r, 1, 2)
		wantUsed(t, g, p, user, 1)
		wantUsed(t, g, p, tenant, 2)
	})
}

// One step gives back at most 1,000 expired holds, or 20 of a large log. Each further step gives
// back as many, and no limit is exceeded meanwhile.
func TestManyExpiredHoldsGoBackInSteps(t *testing.T) {
	t.Parallel()
	log := core.SlidingLog{Windows: []core.Window{{Limit: 500, Width: 24 * time.Hour}}}
	small := core.SlidingWindow{Limit: 500, Window: 24 * time.Hour, Buckets: 240} // 242 entries: 13 of 1,000 each
	for name, tt := range map[string]struct {
		algorithms []core.Algorithm
		holds      int64
		used       [][]int64 // in each step
	}{
		"one state":     {[]core.Algorithm{frozen(2500)}, 2500, [][]int64{{1500}, {500}}},
		"two states":    {[]core.Algorithm{frozen(600), frozen(600)}, 600, [][]int64{{0, 200}}},
		"small windows": {[]core.Algorithm{small}, 100, [][]int64{{24}}},
		"a log":         {[]core.Algorithm{log}, 50, [][]int64{{30}, {10}}},
		"a log first":   {[]core.Algorithm{log, frozen(50)}, 50, [][]int64{{30, 50}, {10, 50}}},
		"a log last":    {[]core.Algorithm{frozen(50), log}, 50, [][]int64{{0, 31}, {0, 11}}},
	} {
		t.Run(name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
				var ones, all []core.Charge
				for i, a := range tt.algorithms {
					p := newPolicy(t, core.PolicyConfig{Name: fmt.Sprint("p", i), Algorithm: a, Hold: time.Hour})
					ones = append(ones, core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 1})
					whole, _, _ := p.Quota()
					all = append(all, core.Charge{Policy: p, Key: newKey(t, "k"), Cost: whole})
				}
				for range tt.holds {
					if _, d, err := g.Charge(t.Context(), ones...); err != nil || !d.Allowed {
						t.Fatal(show(d), err)
					}
					c.Advance(time.Microsecond)
				}
				c.Advance(2 * time.Hour)
				for i, used := range tt.used {
					d := decide(t, g, all...)
					for j, want := range used {
						if d.Allowed || d.At(j).Used != want {
							t.Errorf("step %d, want %d used: %s", i, used, show(d))
							break
						}
					}
				}
				admits(t, g, all...)
			})
		})
	}
}

// settles tells a test of each attempt to settle, and counts them.
func settles(told chan error) core.Config {
	return core.Config{Timeout: busyTimeout, Observe: func(_ context.Context, e core.Event) {
		if isOp(e, core.OpSettle) {
			told <- e.(*core.ReservationEvent).Err
		}
	}}
}

// A Settle whose reply is lost has counted. What is held is sent again, and counts once. What is not held
// is not settled again, because nothing tells whether it was.
func TestUnheldChargesAreSettledOnce(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		g, loses, told := losingGate(t, s)
		held, key := heldFor(t, time.Hour), newKey(t, "k")
		refunded, raised := limited(t, "refunded", frozen(10)), limited(t, "raised", frozen(10))
		postpaid := newPolicy(t, core.PolicyConfig{Name: "postpaid", Algorithm: frozen(10), Hold: time.Hour})
		decide(t, g, core.Charge{Policy: refunded, Key: key, Cost: 4}) // somebody else's
		r := charge(t, g, core.Charge{Policy: held, Key: key, Cost: 4}, core.Charge{Policy: refunded, Key: key, Cost: 2},
			core.Charge{Policy: raised, Key: key, Cost: 1}, core.Charge{Policy: postpaid, Key: key, Cost: core.NoCost})
		loses.Store(true)
		gatetest.Is(t, r.Settle(t.Context(), 3, 0, 4, 3), errReplyLost, "got")
		gatetest.Is(t, <-told, errReplyLost, "the failure was not told")
		worked(t, <-told)
		for p, want := range map[*core.Policy]int64{held: 3, refunded: 4, raised: 4, postpaid: 3} {
			gatetest.Equal(t, used(t, g, p, key), want, "%s: units are in use", p.Name())
		}
	})
}

// A Settle whose reply is lost is sent again within its hold, also if a decision may take longer than that.
func TestSettleIsSentAgainWithinItsHold(t *testing.T) {
	t.Parallel()
	s, told := redistest.Start(t), make(chan error, 2)
	client := s.Client(t)
	var loses atomic.Bool
	client.AddHook(onScripts(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		if loses.Swap(false) {
			return fail(cmds, errReplyLost)
		}
		return send()
	}))
	cfg := settles(told)
	cfg.Timeout = time.Minute
	g := redisGate(t, client, cfg)
	p, key := heldFor(t, 30*time.Second), newKey(t, "k")
	r := charge(t, g, core.Charge{Policy: p, Key: key, Cost: 4})
	loses.Store(true)
	gatetest.Is(t, r.Settle(t.Context(), 3), errReplyLost, "got")
	gatetest.Is(t, <-told, errReplyLost, "the failure was not told")
	eventually(t, "it is settled", func() bool { return len(told) > 0 })
	worked(t, <-told)
	wantUsed(t, g, p, key, 3)
}

// A panic in a hook of the client is a failure of a renewal or a Settle, which is tried again.
func TestReservationSurvivesPanics(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	var on atomic.Bool
	hit := make(chan struct{}, 100)
	client.AddHook(onScripts(func(_ context.Context, _ []redis.Cmder, send func() error) error {
		if on.Load() {
			hit <- struct{}{}
			panic("hook")
		}
		return send()
	}))
	g := redisGate(t, client, core.Config{Timeout: busyTimeout})
	p, key := heldFor(t, 3*time.Second), newKey(t, "k")
	renewed := charge(t, g, core.Charge{Policy: p, Key: key, Cost: 4})
	on.Store(true)
	<-hit
	on.Store(false)
	settle(t, renewed, 3)
	wantUsed(t, g, p, key, 3)
	r := charge(t, g, core.Charge{Policy: p, Key: key, Cost: 4})
	on.Store(true)
	gatetest.Fails(t, r.Settle(t.Context(), 3), "settled")
	on.Store(false)
	g.AwaitTasks()
	wantUsed(t, g, p, key, 6)
}

// losingGate returns a Gate whose client loses the reply to the next script when loses is set. The Gate
// tells of each attempt to settle.
func losingGate(t *testing.T, s *redistest.Server) (g *core.Gate, loses *atomic.Bool, told chan error) {
	t.Helper()
	told, loses = make(chan error, 100), new(atomic.Bool)
	client := s.Client(t)
	client.AddHook(onScripts(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		err := send()
		probes := strings.Contains(cmds[0].String(), ":ping") // a busy machine may have one
		if err == nil && !probes && loses.Swap(false) {
			return fail(cmds, errReplyLost)
		}
		return err
	}))
	cfg := settles(told)
	cfg.Prefix = s.Prefix
	return redisGate(t, client, cfg), loses, told
}

var errReplyLost = errors.New("the reply was lost")

// A caller that leaves while a charge with a Hold is on its way leaves nothing spent: nobody would
// settle it. The first decision of a Gate is sent by another goroutine, the later ones by the
// caller's own.
func TestCallerThatLeavesLeavesNoHold(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client := s.Client(t)
		var leave atomic.Pointer[context.CancelFunc] // when the next script is sent
		client.AddHook(onScripts(func(_ context.Context, _ []redis.Cmder, send func() error) error {
			if leave := leave.Swap(nil); leave != nil {
				(*leave)()
			}
			return send()
		}))
		g := redisGate(t, client, core.Config{Prefix: s.Prefix})
		p, key := heldFor(t, time.Hour), newKey(t, "k")
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			leave.Store(&cancel)
			r, d, err := g.Charge(ctx, core.Charge{Policy: p, Key: key, Cost: 4})
			if r != nil || d.Allowed || !errors.Is(err, context.Canceled) {
				t.Errorf("%s, %v", show(d), err)
			}
			wantUsed(t, g, p, key, 0)
		}
	})
}

// A refund that no caller waits for does not read memory that later decisions use.
func TestLateRefundKeepsItsReceipt(t *testing.T) {
	calls := make(chan func(), 2) // of the Clock, in order
	g := memoryGate(t, core.Config{Clock: func() time.Time {
		select {
		case f := <-calls:
			f()
		default:
		}
		return noon
	}})
	other, spent := memoryGate(t, core.Config{}), limited(t, "spent", frozen(1000))
	p, key := heldFor(t, time.Hour), newKey(t, "k")
	for range 5 { // under the race detector a sync.Pool forgets one value in four
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		reused := make(chan struct{})
		calls <- func() { <-ctx.Done() } // while it decides
		calls <- func() { <-reused }     // before it refunds
		_, _, err := g.Charge(ctx, core.Charge{Policy: p, Key: key, Cost: 4})
		gatetest.Is(t, err, context.DeadlineExceeded, "Charge")
		cancel()
		for range 10 {
			decide(t, other, core.Charge{Policy: spent, Key: key, Cost: 9})
		}
		close(reused)
		g.AwaitTasks()
		wantUsed(t, g, p, key, 0)
	}
}

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
		p := gatetest.Must(core.NewPolicy(core.PolicyConfig{
			Name: "p", Algorithm: rapid.SampledFrom(limits).Draw(t, "limit"), Hold: 90 * time.Minute,
		}))(t)
		key, err := core.NewKey("k")
		noError(t, err)
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
			noError(t, err)
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

// What is settled or cancelled while Redis refuses is sent again until Redis has it, and counts
// once, with and without a hold and after the hold has ended.
func TestSettlesOutliveRefusals(t *testing.T) {
	t.Parallel()
	holds := map[string]time.Duration{"no hold": 0, "a hold": time.Hour, "a hold that ends": shortHold}
	for name, begin := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
			admin := s.Client(t)
			do(t, admin, appUser...)
			client := s.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
			hook := new(answers)
			client.AddHook(onScripts(hook.answer))
			told := make(chan error, 100)
			timeout := longTimeout // a settle without an answer would not be sent again
			if name == "dead" {
				timeout = busyTimeout
			}
			g := redisGate(t, client, core.Config{Timeout: timeout, Observe: func(_ context.Context, e core.Event) {
				if isOp(e, core.OpSettle) || isOp(e, core.OpCancel) {
					told <- e.(*core.ReservationEvent).Err
				}
			}})
			key := newKey(t, "k")
			policies := make(map[string]*core.Policy)
			var open []func() error
			for hold, d := range holds {
				for what, units := range map[string]int64{"less": 3, "more": 7, "nothing": 0, "cancel": -1} {
					name := strings.ReplaceAll(hold+" "+what, " ", "-")
					p := newPolicy(t, core.PolicyConfig{Name: name, Algorithm: frozen(20), Hold: d})
					policies[name] = p
					decide(t, g, core.Charge{Policy: p, Key: key, Cost: 2}) // somebody else's
					r := charge(t, g, core.Charge{Policy: p, Key: key, Cost: 5})
					open = append(open, func() error {
						if units < 0 {
							return r.Cancel(t.Context())
						}
						return r.Settle(t.Context(), units)
					})
				}
			}
			end := begin(t, s, admin, hook)
			if name == "dead" { // what is on its way when the circuit opens may have been settled
				eventually(t, "the circuit is open", func() bool {
					d, err := g.Peek(t.Context(), core.Charge{Policy: policies["no-hold-less"], Key: key})
					return err == nil && errors.Is(d.Cause, core.ErrCircuitOpen)
				})
			}
			for _, settle := range open {
				gatetest.Fails(t, settle(), "settled while Redis refuses")
				gatetest.Fails(t, <-told, "the failure was not told")
			}
			<-time.After(shortHold) // ends
			end()
			for range open {
				select {
				case err := <-told:
					worked(t, err)
				case <-time.After(longTimeout):
					t.Fatal("not settled")
				}
			}
			for name, p := range policies {
				want := int64(2)
				switch {
				case strings.HasSuffix(name, "less"):
					want = 5
				case strings.HasSuffix(name, "more"):
					want = 9
				}
				gatetest.Equal(t, used(t, g, p, key), want, "%s: units are in use", name)
			}
		})
	}
}

const shortHold = time.Second

// appUser makes the user of the Gate.
var appUser = []any{"ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all"}

// refusals are ways in which Redis refuses, until the func that they return is called.
var refusals = map[string]func(
	t *testing.T, s *redistest.Server, admin *redis.Client, h *answers,
) (end func()){
	"NOPERM": func(t *testing.T, _ *redistest.Server, admin *redis.Client, _ *answers) func() {
		do(t, admin, "ACL", "SETUSER", "app", "-evalsha", "-eval")
		return func() { do(t, admin, "ACL", "SETUSER", "app", "+evalsha", "+eval") }
	},
	"WRONGPASS": func(t *testing.T, _ *redistest.Server, admin *redis.Client, _ *answers) func() {
		do(t, admin, "ACL", "SETUSER", "app", "<secret", ">other")
		do(t, admin, "CLIENT", "KILL", "USER", "app")
		return func() { do(t, admin, "ACL", "SETUSER", "app", ">secret") }
	},
	"LOADING": func(_ *testing.T, _ *redistest.Server, _ *redis.Client, h *answers) func() {
		h.with("LOADING Redis is loading the dataset in memory")
		return func() { h.with("") }
	},
	"NOREPLICAS": func(t *testing.T, _ *redistest.Server, admin *redis.Client, _ *answers) func() {
		do(t, admin, "CONFIG", "SET", "min-replicas-to-write", "1")
		return func() { do(t, admin, "CONFIG", "SET", "min-replicas-to-write", "0") }
	},
	"dead": func(t *testing.T, s *redistest.Server, admin *redis.Client, _ *answers) func() {
		s.Kill()
		return func() {
			s.Restart()
			do(t, admin, appUser...)
		}
	},
}

// What an answer does not tell to have changed nothing may have been settled: without a hold it stays
// as it is.
func TestDoubtfulSettleIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		"upstream failure",
		"ERR Connection timed out",
		"ERR The user executing the script can't run this command or subcommand script: abc, on @user_script:1.",
		"NOPERM this user has no permissions to run the 'set' command script: abc, on @user_script:1.",
	} {
		t.Run(answer, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				client, hook := s.Client(t), new(answers)
				client.AddHook(onScripts(hook.answer))
				g := redisGate(t, client, core.Config{Prefix: s.Prefix})
				p, key := limited(t, "p", frozen(20)), newKey(t, "k")
				r := charge(t, g, core.Charge{Policy: p, Key: key, Cost: 5})
				hook.with(answer)
				gatetest.Fails(t, r.Settle(t.Context(), 3), "settled")
				hook.with("")
				g.AwaitTasks()
				wantUsed(t, g, p, key, 5)
			})
		})
	}
}

// answers answers scripts in the server's place.
type answers struct{ text atomic.Value }

func (h *answers) with(text string) { h.text.Store(text) }

func (h *answers) answer(_ context.Context, cmds []redis.Cmder, send func() error) error {
	if text, _ := h.text.Load().(string); text != "" {
		return fail(cmds, errorReply(text))
	}
	return send()
}

// errorReply is an error with which a server answers.
type errorReply string

func (e errorReply) Error() string { return string(e) }
func (errorReply) RedisError()     {}
