package core_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/request"
)

// heldFor returns a policy of 10 units that never come back by themselves, held for a minute.
func heldFor(t testing.TB, hold time.Duration) *core.Policy {
	t.Helper()
	return newPolicy(t, core.PolicyConfig{Name: "budget", Algorithm: frozen(10), Hold: hold})
}

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
		{"settled before", func(t *testing.T, r *core.Reservation, c *core.ManualClock) {
			c.Advance(30 * time.Second)
			settle(t, r, 3)
			c.Advance(time.Hour)
		}, 3, false},
		{"settled for what was spent", func(t *testing.T, r *core.Reservation, c *core.ManualClock) {
			settle(t, r, 4)
			c.Advance(time.Hour)
		}, 4, false},
		{"settled before for more", func(t *testing.T, r *core.Reservation, c *core.ManualClock) {
			settle(t, r, 15)
			c.Advance(time.Hour)
		}, 15, false},
		{"settled after", func(t *testing.T, r *core.Reservation, c *core.ManualClock) {
			c.Advance(time.Hour)
			settle(t, r, 3)
		}, 3, true},
		{"settled after for more", func(t *testing.T, r *core.Reservation, c *core.ManualClock) {
			c.Advance(time.Hour)
			settle(t, r, 15)
		}, 15, true},
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
				if told := expired.Load() > 0; told != test.expired {
					t.Errorf("told of an expired hold: %t", told)
				}
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
		if a, b := used(t, g, requests, key), used(t, g, budget, key); a != 1 || b != 2 {
			t.Errorf("%d requests and %d units are in use, want 1 and 2", a, b)
		}
		settle(t, r, 0, 5)
		if a, b := used(t, g, requests, key), used(t, g, budget, key); a != 0 || b != 7 {
			t.Errorf("%d requests and %d units are in use, want 0 and 7", a, b)
		}
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
		if err != nil {
			t.Fatal(err)
		}
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
		if a, b := used(t, g, p, user), used(t, g, p, tenant); a != 1 || b != 2 {
			t.Errorf("%d and %d units are in use, want 1 and 2", a, b)
		}
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
