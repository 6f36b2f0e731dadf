package core_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

func reserve(t testing.TB, g *core.Gate, wait time.Duration, charges ...core.Charge) (*core.Reservation, core.Decision) {
	t.Helper()
	r, d, err := g.Reserve(t.Context(), wait, charges...)
	if err != nil || d.Cause != nil || (r != nil) != d.Allowed {
		t.Fatalf("Reserve: %v, %s, %v", r != nil, show(d), err)
	}
	return r, d
}

func cancel(t testing.TB, r *core.Reservation) {
	t.Helper()
	if err := r.Cancel(t.Context()); err != nil {
		t.Fatalf("Cancel: %v", err)
	}
}

// A log rewrites at most 1000 entries to refund one.
func TestCancelOfLogRewritesAtMost1000(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		charge := core.Charge{Policy: limited(t, "p", core.SlidingLog{Windows: []core.Window{{Limit: 2000, Width: time.Hour}}}), Key: newKey(t, "k"), Cost: 100}
		var held [2]*core.Reservation
		for i := range held {
			held[i], _ = reserve(t, g, 0, charge)
			c.Advance(time.Second)
		}
		charge.Cost = 1
		for range 1000 {
			decide(t, g, charge)
			c.Advance(time.Millisecond)
		}
		charge.Cost = 100
		for i, want := range []int64{1200, 1100} {
			cancel(t, held[i])
			gatetest.Equal(t, used(t, g, charge.Policy, charge.Key), want, "units used after %d cancels", i+1)
		}
		// The entries that were not refunded are intact.
		c.Advance(time.Hour - 2*time.Second)
		wantUsed(t, g, charge.Policy, charge.Key, 1000)
		c.Advance(time.Second + 499*time.Millisecond)
		wantUsed(t, g, charge.Policy, charge.Key, 1000-500)
	})
}

// Only the first Settle or Cancel counts, in every algorithm. A settled reservation is charged what
// Settle said, and no later window is charged.
func TestReservationIsSettledOnce(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for _, l := range limitsOfTen {
			for name, first := range map[string]int64{"cancel": 0, "lower": 2, "same": 4, "higher": 8, "above the limit": 13, "far above the limit": 40} {
				policy, key := limited(t, "p", l.algorithm), newKey(t, l.name, name)
				decide(t, g, core.Charge{Policy: policy, Key: key, Cost: 1})
				r, d := reserve(t, g, time.Hour, core.Charge{Policy: policy, Key: key, Cost: 4})
				if r == nil {
					t.Fatalf("%s: %s", l.name, show(d))
				}
				gatetest.Is(t, r.Settle(t.Context(), 1, 2), core.ErrCharge, "Settle with two costs for one charge")
				gatetest.Is(t, r.Settle(t.Context(), -1), core.ErrCharge, "Settle with a negative cost")
				if name == "cancel" {
					cancel(t, r)
				} else {
					settle(t, r, first)
				}
				want := debtOf(l.algorithm, 1+first)
				for range 2 {
					gatetest.Equal(t, used(t, g, policy, key), want, "%s, %s: used", l.name, name)
					cancel(t, r)
					settle(t, r, 9)
				}
				c.Advance(time.Second)
			}
		}
	})
}

// Config.Observe may settle the reservation that it is told of.
func TestObserveSettlesReservation(t *testing.T) {
	var r *core.Reservation
	told := 0
	g := memoryGate(t, core.Config{Observe: func(ctx context.Context, e core.Event) {
		if isOp(e, core.OpSettle) {
			told++
			cancel(t, r)
		}
	}})
	policy, key := limited(t, "p", frozen(10)), newKey(t, "k")
	r, _ = reserve(t, g, 0, core.Charge{Policy: policy, Key: key, Cost: 4})
	settle(t, r, 3)
	if n := used(t, g, policy, key); n != 3 || told != 1 {
		t.Errorf("%d used, told %d times", n, told)
	}
}

// The charges of one reservation are settled in the order of the request, and together if they
// share a key. A charge without state and a shadow that was not charged settle nothing.
func TestSettleOfSeveralCharges(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		tokens, requests := limited(t, "tokens", frozen(100)), limited(t, "requests", core.FixedWindow{Limit: 5, Window: 24 * time.Hour})
		shadow := newPolicy(t, core.PolicyConfig{Name: "shadow", Algorithm: frozen(12), Shadow: true})
		a, b := newKey(t, "k", "a"), newKey(t, "k", "b")
		charges := []core.Charge{
			{Policy: tokens, Key: a, Cost: 10}, {Policy: limited(t, "unlimited", core.Unlimited{}), Key: a, Cost: 1}, {Policy: requests, Key: a, Cost: 1},
			{Policy: tokens, Key: a, Cost: 20}, {Policy: shadow, Key: a, Cost: 10}, {Policy: tokens, Key: b, Cost: 5}, {Policy: requests, Key: b, Cost: core.NoCost},
		}
		first, _ := reserve(t, g, 0, charges...)
		second, d := reserve(t, g, 0, charges...)
		if d.At(4).Allowed || used(t, g, shadow, a) != 10 || used(t, g, tokens, a) != 60 {
			t.Fatalf("reserved twice: %s", show(d))
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := second.Settle(ended, 0, 7, 1, 8, 50, 9, 0); err != nil {
			t.Errorf("Settle with a cancelled context: %v", err)
		}
		for _, want := range []struct {
			policy *core.Policy
			key    core.Key
			used   int64
		}{{tokens, a, 38}, {tokens, b, 14}, {requests, a, 2}, {requests, b, 0}, {shadow, a, 10}} {
			if n := used(t, g, want.policy, want.key); n != want.used {
				t.Errorf("settled: %s %s: %d used, want %d", want.policy.Name(), want.key, n, want.used)
			}
		}
		late, end := context.WithDeadline(t.Context(), noon)
		defer end()
		if err := first.Cancel(late); err != nil {
			t.Errorf("Cancel after the context's deadline: %v", err)
		}
		if a, b, s := used(t, g, tokens, a), used(t, g, tokens, b), used(t, g, shadow, a); a != 8 || b != 9 || s != 0 {
			t.Errorf("after Cancel: %d, %d, and %d of the shadow used", a, b, s)
		}
	})
}

// debtOf returns how many units are used if that many are spent of a limit of ten.
func debtOf(a core.Algorithm, units int64) int64 {
	switch a.(type) {
	case core.SlidingWindow, core.SlidingLog:
		return min(units, 20)
	}
	return units
}

// What is settled above the limit is owed, to the unit: also where that is no whole number of
// microseconds, and for longer than ten years of a clock that stands still. An estimate of 0 is settled
// like any other.
func TestDebtsAddUp(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		for _, l := range limitsOfTen {
			policy, key := limited(t, "p", l.algorithm), newKey(t, l.name)
			var held []*core.Reservation
			for _, estimate := range []int64{core.NoCost, 4, 5} {
				r, _ := reserve(t, g, time.Hour, core.Charge{Policy: policy, Key: key, Cost: estimate})
				held = append(held, r)
			}
			for i, total := range []int64{10, 19, 327} {
				settle(t, held[i], []int64{1, 13, 313}[i])
				gatetest.Equal(t, used(t, g, policy, key), debtOf(l.algorithm, total), "%s: used after %d are settled", l.name, i+1)
			}
		}
		for name, b := range map[string]struct {
			core.TokenBucket
			settled, want int64
		}{
			"sevenths": {core.TokenBucket{Rate: 7, Per: 3 * time.Microsecond, Burst: 11}, 999_999_999, 999_999_999},
			"decade":   {core.TokenBucket{Rate: 1, Per: time.Second, Burst: 11}, math.MaxInt64, 11 + 10*86_400*36_525/100},
			"frozen":   {frozen(1_000_000_000_000_000), 3_000_000_000_000_000, 3_000_000_000_000_000},
			"all":      {frozen(1), math.MaxInt64, 4_000_000_000_000_000},
		} {
			p := limited(t, name, b.TokenBucket)
			settle(t, charge(t, g, core.Charge{Policy: p, Key: newKey(t, "k"), Cost: b.Burst}), b.settled)
			gatetest.Equal(t, used(t, g, p, newKey(t, "k")), b.want, "%s: are used", name)
		}
	})
}

// A debt is carried into the next windows, each of which pays as much as the limit, and then it is over.
// The waits know when that is.
func TestDebtIsPaid(t *testing.T) {
	t.Parallel()
	limits := []core.Algorithm{
		core.TokenBucket{Rate: 10, Per: time.Minute, Burst: 10}, core.LeakyBucket{Rate: 10, Per: time.Minute, Capacity: 10},
		core.FixedWindow{Limit: 10, Window: time.Minute}, core.FixedWindow{Limit: 10, Window: time.Minute, FromFirst: true},
		core.Calendar{Limit: 10, Every: core.PeriodMinute, In: lordHowe},
	}
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for i, limit := range limits {
			c.Set(noon)
			policy, key := limited(t, fmt.Sprintf("p%d", i), limit), newKey(t, "k")
			settle(t, charge(t, g, core.Charge{Policy: policy, Key: key, Cost: 10}), 316)
			four := core.Charge{Policy: policy, Key: key, Cost: 4}
			for _, left := range []int{31, 30, 7, 1} { // windows
				c.Set(noon.Add(time.Duration(31-left) * time.Minute))
				d := peek(t, g, four)
				if r := d.At(0); r.Used != int64(10*left+6) || r.RetryAfter != time.Duration(left)*time.Minute ||
					i > 1 && r.ResetAfter != time.Duration(left+1)*time.Minute {
					t.Errorf("%T, %d windows before the last: %s", limit, left, show(d))
				}
			}
			c.Advance(time.Minute - time.Microsecond)
			if d := peek(t, g, four); d.Allowed {
				t.Errorf("%T: %s", limit, show(d))
			}
			c.Advance(time.Microsecond)
			if d := decide(t, g, four); !d.Allowed || d.At(0).Remaining != 0 {
				t.Errorf("%T in the last window: %s", limit, show(d))
			}
			c.Advance(time.Minute)
			gatetest.Equal(t, used(t, g, policy, key), 0, "%T: used after the debt", limit)
		}
	})
}

func TestZeroReservation(t *testing.T) {
	var r core.Reservation
	gatetest.Is(t, r.Settle(t.Context(), 1), core.ErrCharge, "Settle with one cost for no charge")
	if err := errors.Join(r.Settle(t.Context()), r.Cancel(t.Context())); err != nil || r.Delay() != 0 {
		t.Errorf("%v, delay %v", err, r.Delay())
	}
}

// After an Open decision no state counts the charge, so Settle corrects nothing.
func TestSettleAfterOutage(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer client.Close()
	for _, mode := range []core.FailureMode{core.FailOpen, core.FailLocal} {
		g := redisGate(t, client, core.Config{Timeout: 100 * time.Millisecond})
		p := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: frozen(10), OnFailure: mode})
		shadow := newPolicy(t, core.PolicyConfig{Name: "s", Algorithm: frozen(10), Shadow: true})
		key := newKey(t, "k")
		r, d, err := g.Reserve(t.Context(), 0, core.Charge{Policy: p, Key: key, Cost: 3}, core.Charge{Policy: shadow, Key: key, Cost: 3})
		if err != nil || r == nil || d.Cause == nil {
			t.Fatal(show(d), err)
		}
		worked(t, r.Settle(t.Context(), 5, 5))
		d, err = g.Peek(t.Context(), core.Charge{Policy: p, Key: key, Cost: core.NoCost})
		if want := map[core.FailureMode]int64{core.FailLocal: 5}[mode]; err != nil || d.At(0).Used != want {
			t.Errorf("settled as 5: %s, %v", show(d), err)
		}
	}
}

// boundedLimits are limits of every algorithm with the most units that they may admit from one time
// to another, both included. Delays are rounded up, so that two reservations of fractional
// microseconds may end up to 1 µs closer.
var boundedLimits = []struct {
	algorithm core.Algorithm
	most      func(from, to int64) int64
}{
	{core.TokenBucket{Rate: 5, Per: time.Second, Burst: 5}, func(from, to int64) int64 { return 5 + (to-from)*5/1_000_000 }},
	{core.TokenBucket{Rate: 7, Per: 2 * time.Second, Burst: 4}, func(from, to int64) int64 { return 4 + (to-from+1)*7/2_000_000 }},
	{frozen(5), func(int64, int64) int64 { return 5 }},
	{core.LeakyBucket{Rate: 5, Per: time.Second, Capacity: 5}, func(from, to int64) int64 { return 5 + (to-from)*5/1_000_000 }},
	{core.LeakyBucket{Rate: 3, Per: time.Second, Capacity: 4}, func(from, to int64) int64 { return 4 + (to-from+1)*3/1_000_000 }},
	{core.FixedWindow{Limit: 5, Window: time.Second}, func(from, to int64) int64 { return 5 * (to/1_000_000 - from/1_000_000 + 1) }},
	{core.FixedWindow{Limit: 5, Window: time.Second, FromFirst: true}, func(from, to int64) int64 { return 5 * ((to-from)/1_000_000 + 2) }},
	{core.SlidingWindow{Limit: 5, Window: time.Second}, func(from, to int64) int64 { return 9 * ((to-from)/1_000_000 + 1) }},
	{core.SlidingWindow{Limit: 5, Window: time.Second, Buckets: 4}, func(from, to int64) int64 { return 5 * ((to-from)/1_000_000 + 1) }},
	{core.SlidingLog{Windows: []core.Window{{Limit: 5, Width: time.Second}}}, func(from, to int64) int64 { return 5 * ((to-from)/1_000_000 + 1) }},
	{
		core.SlidingLog{Windows: []core.Window{{Limit: 3, Width: 300 * time.Millisecond}, {Limit: 5, Width: time.Second}}},
		func(from, to int64) int64 { return min(3*((to-from)/300_000+1), 5*((to-from)/1_000_000+1)) },
	},
	{core.Calendar{Limit: 5, Every: core.PeriodMinute, In: time.UTC}, func(from, to int64) int64 { return 5 * (to/60_000_000 - from/60_000_000 + 1) }},
}

// However reservations are settled and cancelled, the units that were admitted and kept never
// exceed the limit at the times when they may act. A bucket may admit refunded units once more: it
// may have refilled before the refund, or a later reservation may still wait for them.
func TestRefundsNeverExceedTheLimit(t *testing.T) {
	t.Parallel()
	type admitted struct{ at, units int64 }
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		histories := rounds(t, 8)
		if t.Name() == "TestRefundsNeverExceedTheLimit/memory" {
			histories = 2000
		}
		if long() {
			histories *= 20
		}
		rng, full := redistest.Rand(t), 0
		for i, b := range boundedLimits {
			policy := limited(t, fmt.Sprintf("p%d", i), b.algorithm)
			_, refills := b.algorithm.(core.LeakyBucket)
			if bucket, ok := b.algorithm.(core.TokenBucket); ok {
				refills = bucket.Rate > 0
			}
			scale := int64(1_000_000)
			if _, calendar := b.algorithm.(core.Calendar); calendar {
				scale = 60_000_000
			}
			for n := range histories {
				key := newKey(t, fmt.Sprint(n))
				var (
					events   []admitted
					held     []*core.Reservation // by event; nil without one, or once settled
					refunded int64               // to a bucket
				)
				for range 24 {
					switch at := rng.IntN(1 + len(held)); {
					case at < len(held) && held[at] != nil && rng.IntN(3) == 0:
						actual := rng.Int64N(2 * events[at].units)
						if rng.IntN(2) == 0 {
							actual = 0
						}
						settle(t, held[at], actual)
						if refills {
							refunded += max(0, events[at].units-actual)
						}
						// Units above the estimate are a debt.
						events[at].units, held[at] = min(events[at].units, actual), nil
					case rng.IntN(3) == 0:
						c.Advance(time.Duration([]int64{0, 1, scale / 5, scale / 3, scale, rng.Int64N(scale)}[rng.IntN(6)]) * time.Microsecond)
					default:
						charge := core.Charge{Policy: policy, Key: key, Cost: 1 + rng.Int64N(4)}
						wait := time.Duration(rng.Int64N(2*scale)) * time.Microsecond
						if r, d := reserve(t, g, wait*time.Duration(rng.IntN(2)), charge); r != nil {
							events = append(events, admitted{c.Now().UnixMicro() + d.At(0).Delay.Microseconds(), charge.Cost})
							held = append(held, r)
						}
					}
				}
				events = slices.DeleteFunc(events, func(p admitted) bool { return p.units == 0 })
				slices.SortFunc(events, func(a, b admitted) int { return cmp.Compare(a.at, b.at) })
				for i, first := range events {
					if queue, ok := b.algorithm.(core.LeakyBucket); ok && i+1 < len(events) && refunded == 0 {
						if leaked := first.at + first.units*queue.Per.Microseconds()/queue.Rate; events[i+1].at < leaked-1 {
							t.Fatalf("%+v: departures are too close: %v", queue, events[i:i+2])
						}
					}
					sum := int64(0)
					for j, last := range events[i:] {
						sum += last.units
						most := b.most(first.at, last.at) + refunded
						if sum == most {
							full++
						}
						if sum > most && (i+j+1 == len(events) || events[i+j+1].at > last.at) {
							t.Fatalf("%T%+v: %d admitted, want at most %d: %v", b.algorithm, b.algorithm, sum, most, events[i:i+j+1])
						}
					}
				}
				c.Advance(time.Hour)
			}
		}
		if full == 0 && histories >= 2000 { // few histories may miss it
			t.Error("no history reached a bound")
		}
	})
}

// eachProcesses runs f with n Gates that share their state: on every Redis, and one Gate in memory
// n times. countKeys returns how many keys there are.
func eachProcesses(t *testing.T, n int, f func(t *testing.T, gates []*core.Gate, countKeys func() int)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		g := memoryGate(t, core.Config{Clock: newClock().Now})
		f(t, slices.Repeat([]*core.Gate{g}, n), func() int { return len(g.Values()) })
	})
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		c, client := newClock(), s.Client(t)
		var gates []*core.Gate
		for range n {
			g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, DisableDenialCache: true})
			g.InjectClock(micros(c))
			gates = append(gates, g)
		}
		f(t, gates, func() int { return len(client.Keys(t.Context(), s.Prefix+"*").Val()) })
	})
}

// While the clock stands still, the units in use are the sum of what was kept, in whatever order
// several processes charge, cancel and settle. When everything is cancelled, no key is left.
func TestUsedIsTheSumOfKeptUnits(t *testing.T) {
	t.Parallel()
	const processes, operations = 4, 1000
	eachProcesses(t, processes, func(t *testing.T, gates []*core.Gate, countKeys func() int) {
		for _, l := range append(unfreeable(9_999), namedLimit{"tokens below a microsecond", core.PerSecond(10_000_001)}) {
			seed := rand.Uint64()
			policy, key := limited(t, "p", l.algorithm), newKey(t, l.name)
			var (
				all  sync.WaitGroup
				kept [processes]int64
				open [processes][]*core.Reservation
				cost [processes][]int64
			)
			for i, g := range gates {
				all.Go(func() {
					rng := rand.New(rand.NewPCG(seed, uint64(i)))
					for range rounds(t, operations) / processes {
						at := rng.IntN(2*len(open[i]) + 1)
						if at >= len(open[i]) {
							n := 1 + rng.Int64N(4)
							r, d, err := g.Charge(context.Background(), core.Charge{Policy: policy, Key: key, Cost: n})
							if r == nil {
								t.Errorf("%s, seed %d: %s, %v", l.name, seed, show(d), err)
								return
							}
							open[i], cost[i] = append(open[i], r), append(cost[i], n)
							kept[i] += n
							continue
						}
						actual := rng.Int64N(2) * rng.Int64N(2*cost[i][at]+1)
						if err := open[i][at].Settle(context.Background(), actual); err != nil {
							t.Errorf("%s, seed %d: %v", l.name, seed, err)
							return
						}
						kept[i] += actual - cost[i][at]
						open[i], cost[i] = slices.Delete(open[i], at, at+1), slices.Delete(cost[i], at, at+1)
					}
				})
			}
			all.Wait()
			sum := int64(0)
			for _, n := range kept {
				sum += n
			}
			gatetest.Equal(t, used(t, gates[0], policy, key), sum, "%s, seed %d: used of what is kept", l.name, seed)
			noError(t, gates[0].Reset(t.Context(), core.Charge{Policy: policy, Key: key}))

			// Charge the same again, and cancel all of it.
			untouched := show(peek(t, gates[0], core.Charge{Policy: policy, Key: key, Cost: 1}))
			var held []*core.Reservation
			for i := range rounds(t, operations) {
				r, _, err := gates[i%processes].Charge(t.Context(), core.Charge{Policy: policy, Key: key, Cost: 1 + int64(i%7)})
				if err != nil || r == nil {
					t.Fatal(l.name, err)
				}
				held = append(held, r)
			}
			rng := rand.New(rand.NewPCG(seed, 0))
			rng.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
			for _, r := range held {
				cancel(t, r)
			}
			if now := show(peek(t, gates[0], core.Charge{Policy: policy, Key: key, Cost: 1})); now != untouched || countKeys() != 0 {
				t.Errorf("%s, seed %d: %d keys remain, got\n%s\nwant\n%s", l.name, seed, countKeys(), now, untouched)
			}
		}
	})
}

// Requests that are cancelled a moment later, in mixed order, are never denied while fewer than the
// burst are outstanding.
func TestCancelledRequestsAreNeverDenied(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for _, limit := range []struct {
			algorithm   core.Algorithm
			outstanding int
		}{
			{core.PerHour(20), 12}, {core.PerHour(5), 3}, {core.PerMinute(70), 12},
			{core.LeakyBucket{Rate: 20, Per: time.Hour, Capacity: 20}, 12}, {core.SlidingWindow{Limit: 20, Window: time.Hour}, 12},
			{core.SlidingLog{Windows: []core.Window{{Limit: 2, Width: time.Hour}}}, 1},
		} {
			rng := redistest.Rand(t)
			charge := core.Charge{Policy: limited(t, "p", limit.algorithm), Key: newKey(t, fmt.Sprintf("%T%v", limit.algorithm, limit.algorithm)), Cost: 1}
			var open []*core.Reservation
			for i := range rounds(t, 2000) {
				c.Advance(time.Duration(rng.IntN(20_000)) * time.Microsecond)
				r, d, err := g.Charge(t.Context(), charge)
				if r == nil {
					t.Fatalf("%+v: denied with %d outstanding after %d: %s, %v", limit.algorithm, len(open), i, show(d), err)
				}
				for open = append(open, r); len(open) >= limit.outstanding; {
					at := rng.IntN(len(open))
					cancel(t, open[at])
					open = slices.Delete(open, at, at+1)
				}
			}
		}
	})
}

// A running window whose limit gets a longer one counts to the end of the longer one, and its key lives
// as long. So does a debt that is carried into such a window.
func TestKeyOutlivesAWidenedWindow(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		fromFirst     bool
		settle        int64
		after, shrunk time.Duration // until the wider limit decides, and since the window began
	}{
		{"running", false, 5, 400 * time.Millisecond, 400 * time.Millisecond},
		{"debt", true, 10, 600 * time.Millisecond, 100 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				client, clock := s.Client(t), core.NewManualClock(noon)
				g := redisGate(t, client, core.Config{Prefix: s.Prefix, DisableDenialCache: true})
				g.InjectClock(micros(clock))
				p := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: changing(
					core.FixedWindow{Limit: 5, Window: 500 * time.Millisecond, FromFirst: tt.fromFirst},
					core.FixedWindow{Limit: 5, Window: time.Hour, FromFirst: tt.fromFirst})})
				charge := core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 5}
				r, _ := reserve(t, g, 0, charge)
				settle(t, r, tt.settle)
				clock.Advance(tt.after)
				charge.Cost = 1
				d, err := g.Decide(t.Context(), under(1, charge)...)
				wait := d.RetryAfter()
				if err != nil || d.Allowed || wait != time.Hour-tt.shrunk {
					t.Fatal(show(d), err)
				}
				name := client.Keys(t.Context(), s.Prefix+"*").Val()[0]
				if ttl := client.PTTL(t.Context(), name).Val(); ttl < wait {
					t.Errorf("the key expires in %v, the wait is %v", ttl, wait)
				}
			})
		})
	}
}
