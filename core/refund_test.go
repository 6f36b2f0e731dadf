package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

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
			if n := used(t, gates[0], policy, key); n != sum {
				t.Errorf("%s, seed %d: %d used, %d kept", l.name, seed, n, sum)
			}
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
