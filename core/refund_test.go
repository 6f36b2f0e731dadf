package core_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/request"
)

// limitsOf10000 are limits of every algorithm, with room for 10,000 at once.
var limitsOf10000 = []struct {
	name      string
	algorithm core.Algorithm
}{
	{"token bucket", core.TokenBucket{Rate: 1, Per: time.Minute, Burst: 10_000}},
	{"token bucket with fractional microseconds", core.TokenBucket{Rate: 70, Per: time.Minute, Burst: 10_000}},
	{"token bucket of sub-microsecond tokens", core.PerSecond(3_000_001)},
	{"token bucket without refill", frozen(10_000)},
	{"leaky bucket", core.LeakyBucket{Rate: 70, Per: time.Minute, Capacity: 10_000}},
	{"fixed window", core.FixedWindow{Limit: 10_000, Window: time.Hour}},
	{"window from first", core.FixedWindow{Limit: 10_000, Window: time.Hour, FromFirst: true}},
	{"two counters", core.SlidingWindow{Limit: 10_000, Window: time.Hour}},
	{"buckets", core.SlidingWindow{Limit: 10_000, Window: time.Hour, Buckets: 10}},
	{"log", core.SlidingLog{Windows: []core.Window{{Limit: 10_000, Width: time.Hour}}}},
	{"calendar", core.Calendar{Limit: 10_000, Every: core.PeriodDay, In: time.UTC}},
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
		for _, l := range limitsOf10000 {
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
			if n := used(t, gates[0], policy, key); n != sum {
				t.Errorf("%s, seed %d: %d used, %d kept", l.name, seed, n, sum)
			}
			if err := gates[0].Reset(t.Context(), core.Charge{Policy: policy, Key: key}); err != nil {
				t.Fatal(err)
			}

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

// Three of four charges of one instant are cancelled, out of order.
func TestCancelOutOfOrder(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		for _, l := range append(slices.Clone(limitsOfTen), limitsOf10000...) {
			charge := core.Charge{Policy: limited(t, "p", l.algorithm), Key: newKey(t, l.name), Cost: 1}
			var held []*core.Reservation
			for range 4 {
				r, _ := reserve(t, g, 0, charge)
				if _, queue := l.algorithm.(core.LeakyBucket); queue {
					r, _ = reserve(t, g, time.Hour*24, charge)
				}
				held = append(held, r)
			}
			before := used(t, g, charge.Policy, charge.Key)
			for _, i := range []int{0, 2, 1} {
				cancel(t, held[i])
			}
			if n := used(t, g, charge.Policy, charge.Key); n != before-3 {
				t.Errorf("%s: %d used after 3 of %d were cancelled", l.name, n, before)
			}
		}
	})
}

// Tokens of fractional microseconds are refunded exactly.
func TestCancelOfFractionalTokens(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		charge := core.Charge{Policy: limited(t, "p", core.PerMinute(70)), Key: newKey(t, "k"), Cost: 1}
		first, _ := reserve(t, g, 0, charge)
		reserve(t, g, 0, charge)
		cancel(t, first)
		if n := used(t, g, charge.Policy, charge.Key); n != 1 {
			t.Errorf("%d used, want 1", n)
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
		} {
			seed := rand.Uint64()
			rng := rand.New(rand.NewPCG(seed, 0))
			charge := core.Charge{Policy: limited(t, "p", limit.algorithm), Key: newKey(t, fmt.Sprintf("%T%v", limit.algorithm, limit.algorithm)), Cost: 1}
			var open []*core.Reservation
			for i := range rounds(t, 2000) {
				c.Advance(time.Duration(rng.IntN(20_000)) * time.Microsecond)
				r, d, err := g.Charge(t.Context(), charge)
				if r == nil {
					t.Fatalf("%+v, seed %d: denied with %d outstanding after %d: %s, %v", limit.algorithm, seed, len(open), i, show(d), err)
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

// Streams reserve twice what they use, and settle when they end. While there is demand, they use
// nearly all of the limit.
func TestStreamsUseTheirBudget(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		const limit, estimate, minutes = 100_000, 2000, 30
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		charge := core.Charge{Policy: limited(t, "p", core.PerMinute(limit)), Key: newKey(t, "k"), Cost: estimate}
		type stream struct {
			*core.Reservation
			end int64
		}
		var running []stream
		began, sum := c.Now().UnixMicro(), int64(0)
		length := int64(rounds(t, minutes)) * time.Minute.Microseconds()
		for c.Now().UnixMicro()-began < length {
			next := c.Now().UnixMicro() + time.Second.Microseconds()
			if r, d := reserve(t, g, 0, charge); r != nil {
				running = append(running, stream{r, c.Now().UnixMicro() + 30_000_000 + rng.Int64N(30_000_000)})
				continue
			} else if wait := d.RetryAfter(); wait > 0 {
				next = min(next, c.Now().UnixMicro()+wait.Microseconds())
			}
			ended := -1
			for i, s := range running {
				if s.end <= next {
					next, ended = s.end, i
				}
			}
			c.Set(time.UnixMicro(next))
			if ended >= 0 {
				settle(t, running[ended].Reservation, estimate/2)
				sum += estimate / 2
				running = slices.Delete(running, ended, ended+1)
			}
		}
		most := limit + limit*length/time.Minute.Microseconds()
		if least := limit * (length/time.Minute.Microseconds() - 1) * 95 / 100; sum < least || sum > most {
			t.Errorf("seed %d: %d tokens used in %v, want %d to %d", seed, sum, time.Duration(length)*time.Microsecond, least, most)
		}
	})
}

// The estimate of a stream that is as long as the bucket takes to refill is refunded, because the
// bucket was never full in between.
func TestSettleOfALongStream(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		charge := core.Charge{Policy: limited(t, "p", core.PerMinute(60)), Key: newKey(t, "k"), Cost: 50}
		stream, _ := reserve(t, g, 0, charge)
		charge.Cost = 1
		for range 60 { // others keep the bucket busy
			c.Advance(time.Second)
			reserve(t, g, 0, charge)
		}
		before := used(t, g, charge.Policy, charge.Key)
		settle(t, stream, 20)
		if n := used(t, g, charge.Policy, charge.Key); n != before-30 {
			t.Errorf("%d used, and %d after a refund of 30", before, n)
		}
		// Once the bucket has been full, there is nothing to refund.
		old, _ := reserve(t, g, 0, charge)
		c.Advance(2 * time.Minute)
		reserve(t, g, 0, charge)
		cancel(t, old)
		if n := used(t, g, charge.Policy, charge.Key); n != 1 {
			t.Errorf("%d used, want the 1 charged since the bucket was full", n)
		}
	})
}

// Two alternating anchors count separately: each admits its own limit in each of its own days.
func TestAlternatingAnchorsCountSeparately(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		days := []core.Algorithm{
			core.Calendar{Limit: 5, Every: core.PeriodDay, In: time.UTC, Anchor: noon.Add(-6 * time.Hour)},
			core.Calendar{Limit: 5, Every: core.PeriodDay, In: time.UTC, Anchor: noon.Add(6 * time.Hour)},
		}
		charge := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: changing(days...)}), Key: newKey(t, "k"), Cost: 5}
		c.Set(noon.Add(-6 * time.Hour))
		got := int64(0)
		for i := range 24 {
			n, _, err := atMost(g, t.Context(), under(i, core.Charge{Policy: charge.Policy, Key: charge.Key, Cost: 1})...)
			if err != nil {
				t.Fatal(err)
			}
			got += n
			c.Advance(time.Hour)
		}
		if got != 15 { // the second's next day begins in the middle
			t.Errorf("%d admitted in one day of the first anchor and two of the second", got)
		}
		for i, anchor := range days {
			d, err := g.Peek(t.Context(), under(i, core.Charge{Policy: charge.Policy, Key: charge.Key, Cost: core.NoCost})...)
			if err != nil || d.At(0).Used > 5 {
				t.Errorf("%+v: %s, %v", anchor, show(d), err)
			}
		}
	})
}

// A running window whose limit gets a longer one counts to the end of the longer one, and its key
// lives as long.
func TestWidenedWindowKeepsItsCount(t *testing.T) {
	t.Parallel()
	limits := []core.Algorithm{
		core.FixedWindow{Limit: 5, Window: 500 * time.Millisecond}, core.FixedWindow{Limit: 5, Window: time.Hour},
	}
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		c.Set(noon)
		charge := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: changing(limits...)}), Key: newKey(t, "k"), Cost: 5}
		decide(t, g, charge)
		charge.Cost, charge.Limit = 1, limits[1]
		for range 60 {
			if d, err := g.Decide(t.Context(), charge); err != nil || d.Allowed {
				t.Fatalf("%v after noon: %s, %v", c.Now().Sub(noon), show(d), err)
			}
			c.Advance(time.Minute)
			if c.Now().UnixMicro() == noon.Add(time.Minute).UnixMicro() {
				c.Advance(-time.Minute + 400*time.Millisecond)
			}
		}
	})
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client := s.Client(t)
		g := redisGate(t, client, core.Config{Prefix: s.Prefix})
		charge := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: changing(limits...)}), Key: newKey(t, "k"), Cost: 5}
		for {
			decide(t, g, charge)
			d, err := g.Decide(t.Context(), under(1, charge)...)
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed { // the first window ended before the second decision
				continue
			}
			wait := d.RetryAfter()
			name := client.Keys(t.Context(), s.Prefix+"*").Val()[0]
			if ttl := client.PTTL(t.Context(), name).Val(); ttl < wait-time.Minute {
				t.Errorf("the key expires in %v, the wait is %v", ttl, wait)
			}
			break
		}
	})
}

// A cost of 0 spends nothing, so it does not wait in a queue.
func TestReserveOfZeroDoesNotWait(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		charge := core.Charge{Policy: limited(t, "p", core.LeakyBucket{Rate: 1, Per: time.Minute, Capacity: 5}), Key: newKey(t, "k"), Cost: 5}
		decide(t, g, charge)
		charge.Cost = core.NoCost
		for _, wait := range []time.Duration{0, time.Hour} {
			if r, d := reserve(t, g, wait, charge); r == nil || d.At(0).Delay != 0 || r.Delay() != 0 {
				t.Errorf("with a wait of at most %v: %s", wait, show(d))
			}
		}
	})
}

// A caller's own deadline is not an outage: the caller gets the error of its context, and the local
// share is not spent.
func TestCallersDeadlineIsNotAnOutage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	g := redisGate(t, client, core.Config{Timeout: time.Minute})
	c := core.Charge{Policy: limited(t, "p", frozen(5)), Key: newKey(t, "k"), Cost: 1}
	decide(t, g, c)
	s.Stop()
	for range 9 {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		d, err := g.Decide(ctx, c)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || d.Allowed {
			t.Errorf("%s, %v", show(d), err)
		}
	}
	s.Continue()
}

// Settling for more charges up to twice the limit, from any start.
func TestSettleUpToTwiceTheLimit(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		for _, l := range limitsOfTen {
			if l.name == "log of two windows" {
				continue // its shorter window allows less
			}
			for _, actual := range []int64{5, 15, 20, 1000} {
				charge := core.Charge{Policy: limited(t, "p", l.algorithm), Key: newKey(t, l.name, fmt.Sprint(actual)), Cost: 1}
				r, _ := reserve(t, g, 0, charge)
				settle(t, r, actual)
				if n, want := used(t, g, charge.Policy, charge.Key), min(actual, 20); n != want {
					t.Errorf("%s: settled as %d: %d used, want %d", l.name, actual, n, want)
				}
			}
		}
	})
}

// A debt that is carried into the next window counts there, even if that window gets another width.
func TestDebtInAWidenedWindow(t *testing.T) {
	t.Parallel()
	limits := []core.Algorithm{
		core.FixedWindow{Limit: 5, Window: time.Second, FromFirst: true}, core.FixedWindow{Limit: 5, Window: time.Hour, FromFirst: true},
	}
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client, clock := s.Client(t), newClock()
		g := redisGate(t, client, core.Config{Prefix: s.Prefix, DisableDenialCache: true})
		g.InjectClock(micros(clock))
		charge := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: changing(limits...)}), Key: newKey(t, "k"), Cost: 5}
		r, _ := reserve(t, g, 0, charge)
		settle(t, r, 10)
		clock.Advance(1100 * time.Millisecond)
		charge.Cost = 1
		d, err := g.Decide(t.Context(), under(1, charge)...)
		if err != nil || d.Allowed {
			t.Fatal(show(d), err)
		}
		wait := d.RetryAfter()
		name := client.Keys(t.Context(), s.Prefix+"*").Val()[0]
		if ttl := client.PTTL(t.Context(), name).Val(); wait < 59*time.Minute || ttl < wait {
			t.Errorf("the key expires in %v, the wait is %v", ttl, wait)
		}
	})
}

// A value that resembles a state is rejected or rewritten, and no other key is charged twice
// because of it.
func TestValuesResemblingAState(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client := s.Client(t)
		g := redisGate(t, client, core.Config{Prefix: s.Prefix, DisableDenialCache: true})
		policy := limited(t, "p", core.PerHour(10_000))
		bad, good := newKey(t, "bad"), newKey(t, "good")
		for _, value := range []string{"xx0000000000000001", "0x0000000000000001", "1 0x1a2b3c4d5e6f70", "4200000000000000010"} {
			if err := client.Set(t.Context(), s.Prefix+":"+bad.String()+request.BundleSuffix, value, time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
			if err := g.Reset(t.Context(), core.Charge{Policy: policy, Key: good}); err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					for range 20 {
						if i%2 == 0 {
							if _, err := g.Decide(t.Context(), core.Charge{Policy: policy, Key: bad, Cost: 1}); err != nil && !errors.Is(err, core.ErrMisconfigured) {
								t.Errorf("%q: %v", value, err)
							}
						} else if d, err := g.Decide(t.Context(), core.Charge{Policy: policy, Key: good, Cost: 1}); err != nil || !d.Allowed {
							t.Errorf("the key beside %q: %v", value, err)
						}
					}
				})
			}
			all.Wait()
			if n := used(t, g, policy, good); n < 70 || n > 80 { // a token takes 0.36 s
				t.Errorf("%d used of the key beside %q, want 70 to 80", n, value)
			}
			if err := client.Set(t.Context(), s.Prefix+":"+bad.String()+request.BundleSuffix, value, time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
			before := used(t, g, policy, good)
			d, err := g.Decide(t.Context(), core.Charge{Policy: policy, Key: good, Cost: 1}, core.Charge{Policy: policy, Key: bad, Cost: 1})
			if n := used(t, g, policy, good); err != nil && (!errors.Is(err, core.ErrMisconfigured) || n > before) {
				t.Errorf("%q: %s, %v, %d used, %d before", value, show(d), err, n, before)
			}
		}
	})
}
