package core_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/request"
)

// expiryTime returns the time at which a key expires. It skips the test if the server is older than
// Redis 7.
func expiryTime(t *testing.T, client *redis.Client, name string) time.Duration {
	t.Helper()
	at, err := client.PExpireTime(t.Context(), name).Result()
	if err != nil && strings.Contains(err.Error(), "unknown command") {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	return at
}

// A key outlives its state by at least a second and at most 10 s. The script does not set the TTL
// at each charge.
func TestKeyOutlivesItsState(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client := s.Client(t)
		g := redisGate(t, client, core.Config{Prefix: s.Prefix})
		p := limited(t, "p", core.TokenBucket{Rate: 1_000_000, Per: time.Second, Burst: 10_000_000_000})
		charge := core.Charge{Policy: p, Key: newKey(t, "k"), Cost: core.NoCost}
		kept := 0
		var before time.Duration
		for range rounds(t, 400) {
			charge.Cost = 1 + rand.Int64N(3_000_000)
			decide(t, g, charge)
			name := client.Keys(ctx, s.Prefix+"*").Val()[0]
			arrival := bundled(client.Get(ctx, name).Val()[7:])
			at := expiryTime(t, client, name)
			if most := time.Duration(arrival) * time.Microsecond; at < most+999*time.Millisecond || at > most+10*time.Second {
				t.Fatalf("the state lasts until %v, the key until %v", most, at)
			}
			if at == before {
				kept++
			}
			before = at
		}
		if s.Real && kept == 0 {
			t.Error("every charge changed the TTL")
		}
	})
}

// The key of a session lives as long as that after its last charge, and so do its holds.
func TestKeyOutlivesItsSession(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client := s.Client(t)
		g := redisGate(t, client, core.Config{Prefix: s.Prefix, DisableDenialCache: true})
		key := newKey(t, "run")
		session := func(name string, lifetime, hold time.Duration) core.Charge {
			return core.Charge{Key: key, Policy: newPolicy(t, core.PolicyConfig{
				Name: name, Algorithm: core.TokenBucket{Burst: 1000, Per: lifetime}, Hold: hold,
			})}
		}
		charges := []core.Charge{
			session("long", 50*time.Hour, 0), session("short", time.Hour, 0), session("held", time.Hour, time.Minute),
		}
		for i := range 2 * len(charges) {
			reservation, d, err := g.Reserve(t.Context(), 0, charges[i%len(charges)])
			if err != nil || !d.Allowed {
				t.Fatal(show(d), err)
			}
			noError(t, reservation.Settle(t.Context(), 2))
			decide(t, g, charges...)
			for _, name := range client.Keys(t.Context(), s.Prefix+"*").Val() {
				lifetime := time.Hour
				if strings.Contains(name, "long") {
					lifetime *= 50
				}
				if ttl := client.PTTL(t.Context(), name).Val(); ttl < lifetime || ttl > lifetime+time.Minute {
					t.Errorf("%s lives for %v", name, ttl)
				}
			}
		}
	})
}

// The key of a log outlives the entries that each of its alternating limits counts, and the script
// does not extend the TTL each time.
func TestKeyOutlivesItsLog(t *testing.T) {
	t.Parallel()
	widths := []time.Duration{200 * time.Millisecond, 3 * time.Second, time.Minute}
	for _, few := range []bool{true, false} { // small states are written whole
		t.Run(fmt.Sprint(few), func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				client := s.Client(t)
				g := redisGate(t, client, core.Config{Prefix: s.Prefix, DisableDenialCache: true})
				var limits []core.Algorithm
				for _, w := range widths {
					if few {
						limits = append(limits, core.SlidingWindow{Limit: 1_000_000, Window: w, Buckets: 2})
					} else {
						limits = append(limits, core.SlidingLog{Windows: []core.Window{{Limit: 10_000, Width: w}}})
					}
				}
				charge := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: changing(limits...)}), Key: newKey(t, "k"), Cost: 1}
				kept, plan := 0, 0
				var before time.Duration
				for i := range rounds(t, 400) {
					if i%20 == 0 {
						plan = rand.IntN(len(widths))
					}
					time.Sleep(time.Duration(rand.IntN(2)) * time.Millisecond) // windows of the server pass
					ctx := t.Context()
					charge.Limit = limits[plan]
					if d, err := g.Decide(ctx, charge); err != nil || !d.Allowed {
						t.Fatal(show(d), err)
					}
					name := client.Keys(ctx, s.Prefix+"*").Val()[0]
					newest := gatetest.Must(strconv.ParseInt(client.GetRange(ctx, name, 48, 63).Val(), 10, 64))(t)
					at := expiryTime(t, client, name)
					end := time.Duration(newest)*time.Microsecond + widths[plan]
					if at < end+999*time.Millisecond || at > end+2*time.Minute {
						t.Fatalf("the log counts until %v, the key lasts until %v", end, at)
					}
					if at == before {
						kept++
					}
					before = at
				}
				if s.Real && kept == 0 {
					t.Error("every charge changed the TTL")
				}
			})
		})
	}
}

// bundleOf returns the buckets of the only key that the server has, and its time to live.
func bundleOf(t *testing.T, client *redis.Client, prefix string) (map[string]string, time.Duration) {
	t.Helper()
	names := client.Keys(t.Context(), prefix+"*").Val()
	gatetest.Need(t, len(names), 1, "keys: %v", names)
	return unbundle(t, client.Get(t.Context(), names[0]).Val()), client.PTTL(t.Context(), names[0]).Val()
}

// The buckets of a key are one key of Redis. It lives as long as the slowest of them, and Reset forgets
// one of them alone.
func TestBucketsOfAKeyShareABundle(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client := s.Client(t)
		g := redisGate(t, client, core.Config{Prefix: s.Prefix, DisableDenialCache: true})
		key := newKey(t, "tenant", "user")
		charges := []core.Charge{
			{Policy: limited(t, "hour", core.PerHour(60)), Key: key, Cost: 60},
			{Policy: limited(t, "second", core.PerSecond(1000)), Key: key, Cost: 1},
			{Policy: limited(t, "leaky", core.LeakyBucket{Rate: 7, Per: time.Second, Capacity: 100}), Key: key, Cost: 1},
			{Policy: limited(t, "third", core.TokenBucket{Rate: 3, Per: 7 * time.Second, Burst: 9}), Key: key, Cost: 2},
		}
		decide(t, g, charges...)
		for range 3 { // which moves the others, and not the first
			for _, some := range [][]core.Charge{charges[1:2], charges[1:3], charges[3:]} {
				decide(t, g, some...)
			}
			states, ttl := bundleOf(t, client, s.Prefix)
			if len(states) != 4 || ttl < 59*time.Minute {
				t.Errorf("%d buckets, which live for %v", len(states), ttl)
			}
		}
		noError(t, g.Reset(t.Context(), charges[1]))
		states, ttl := bundleOf(t, client, s.Prefix)
		if len(states) != 3 || ttl < 59*time.Minute {
			t.Errorf("%d buckets after a reset, which live for %v", len(states), ttl)
		}
		gatetest.Equal(t, used(t, g, charges[0].Policy, key), 60, "of the hour used")
		for _, c := range charges {
			noError(t, g.Reset(t.Context(), c))
		}
		if names := client.Keys(t.Context(), s.Prefix+"*").Val(); len(names) > 0 {
			t.Errorf("keys after all resets: %v", names)
		}
	})
}

// A bundle lives as long as each of its buckets, whichever of them were charged last, alone or in one
// script.
func TestBundleOutlivesItsBuckets(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client := s.Client(t)
		g := redisGate(t, client, core.Config{Prefix: s.Prefix})
		var policies []*core.Policy
		for i := range 3 {
			policies = append(policies,
				limited(t, fmt.Sprint("fast", i), core.TokenBucket{
					Rate: 1_000_000, Per: time.Second, Burst: 10_000_000_000,
				}),
				limited(t, fmt.Sprint("slow", i), core.PerHour(3_600)))
		}
		policies = append(policies,
			limited(t, "leaky", core.LeakyBucket{Rate: 7, Per: time.Minute, Capacity: 1000}),
			limited(t, "frozen", frozen(1_000_000)))
		for i := range rounds(t, 100) {
			key := newKey(t, "k", fmt.Sprint(i/10))
			some := policies
			if i%2 == 0 {
				some = policies[:6] // by lua/decide/buckets.lua
			}
			var asked []*core.ScriptRequest
			for range 1 + i%10 {
				var charges []core.Charge
				for _, p := range some {
					if cost := 1 + rand.Int64N(20); rand.IntN(4) == 0 {
						if strings.HasPrefix(p.Name(), "fast") && rand.IntN(2) == 0 {
							cost = 1 + rand.Int64N(20_000_000) // a microsecond each
						}
						charges = append(charges, core.Charge{Policy: p, Key: key, Cost: cost})
					}
				}
				if len(charges) == 0 {
					continue
				}
				r := gatetest.Must(g.NewRequest("decide", 0, charges...))(t)
				r.WithoutReceipts()
				asked = append(asked, r)
			}
			if len(asked) == 0 {
				continue
			}
			if _, _, err := g.DecideShared(t.Context(), asked); err != nil {
				t.Fatal(err)
			}
			name := s.Prefix + ":" + key.String() + request.BundleSuffix
			now, bundle := client.Time(t.Context()).Val(), client.Get(t.Context(), name).Val()
			ttl := client.PTTL(t.Context(), name).Val()
			for _, e := range entries(t, bundle) {
				least := time.Duration(bundled(e[7:])-now.UnixMicro()) * time.Microsecond
				if ttl < least {
					t.Fatalf("a bundle lives for %v, and one of its buckets for %v", ttl, least)
				}
			}
		}
	})
}

// The last bucket of a bundle that is not full may go, by a refund or a reset. Those that are left
// expire.
func TestFullBucketsExpire(t *testing.T) {
	t.Parallel()
	for _, reset := range []bool{false, true} {
		redistest.Each(t, func(t *testing.T, s *redistest.Server) {
			client, clock := s.Client(t), newClock()
			g := redisGate(t, client, core.Config{Prefix: s.Prefix})
			g.InjectClock(micros(clock))
			key := newKey(t, "k")
			month := core.TokenBucket{Rate: 1, Per: 30 * 24 * time.Hour, Burst: 1}
			slow := core.Charge{Policy: limited(t, "slow", month), Key: key, Cost: 1}
			decide(t, g, core.Charge{Policy: limited(t, "fast", core.PerSecond(1)), Key: key, Cost: 1})
			r := charge(t, g, slow)
			clock.Advance(5 * 24 * time.Hour) // more than a TTL allows for, and less than it takes to be forgotten
			if reset {
				worked(t, g.Reset(t.Context(), slow))
			} else if err := r.Cancel(t.Context()); err != nil {
				t.Error(err)
			}
			if states, ttl := bundleOf(t, client, s.Prefix); len(states) != 1 || ttl <= 0 {
				t.Errorf("%d buckets, which live for %v", len(states), ttl)
			}
		})
	}
}

// A bundle that stays in use forgets the buckets of policies that nobody charges any more.
func TestBundleForgetsFullBuckets(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client, clock := s.Client(t), newClock()
		g := redisGate(t, client, core.Config{Prefix: s.Prefix})
		g.InjectClock(micros(clock))
		key := newKey(t, "k")
		old, used := limited(t, "old", core.PerSecond(1)), limited(t, "used", core.PerSecond(1))
		decide(t, g, core.Charge{Policy: old, Key: key, Cost: 1}, core.Charge{Policy: used, Key: key, Cost: 1})
		for _, after := range []struct {
			passed time.Duration
			kept   int
		}{{time.Hour, 2}, {11 * 24 * time.Hour, 1}} {
			clock.Advance(after.passed)
			decide(t, g, core.Charge{Policy: used, Key: key, Cost: 1})
			if states, _ := bundleOf(t, client, s.Prefix); len(states) != after.kept {
				t.Errorf("%d buckets after %v, want %d", len(states), after.passed, after.kept)
			}
		}
	})
}

// unbundle returns the states of a bundle by their labels and as the model has them.
func unbundle(t *testing.T, value any) map[string]string {
	t.Helper()
	states := make(map[string]string)
	for _, e := range entries(t, value) {
		text := fmt.Sprintf("%02d%016d", e[6]%64, bundled(e[7:]))
		if len(e) > 14 {
			text += fmt.Sprintf(" %d %d", bundled(e[14:]), bundled(e[21:]))
			if since := bundled(e[28:]); since > 0 {
				text += fmt.Sprintf(" %016d", since-1)
			}
		}
		states[e[:6]] = text
	}
	return states
}

// entries returns the entries of a bundle, as lua/bundle/bundle.lua describes it.
func entries(t *testing.T, value any) (all []string) {
	t.Helper()
	bundle, _ := value.(string)
	for rest := bundle; rest != ""; {
		size := 14
		if len(rest) > 6 && rest[6] > 127 {
			size = 35
		}
		if len(rest) < size {
			t.Fatalf("%q is no bundle", bundle)
		}
		all, rest = append(all, rest[:size]), rest[size:]
	}
	return all
}

// bundled reads a number of a bundle.
func bundled(text string) (n int64) {
	for i := range 7 {
		n |= int64(text[i]) << (8 * i)
	}
	return n
}

// isDrained reports whether a bucket of the model, as its value has it, has been full for so long that
// Redis may have dropped its entry. On an injected clock that is ten days, and the clock may have gone back
// by days since.
func isDrained(value string, now int64) bool {
	if len(value) < 18 {
		return false
	}
	arrival, err := strconv.ParseInt(value[2:18], 10, 64)
	return err == nil && arrival > epoch/2 && time.Duration(now-arrival)*time.Microsecond > 5*24*time.Hour
}

// The key lives as long as the state that was charged needs, also if the same script asks it under
// another limit after that.
func TestKeyOutlivesOtherLimits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		long, short core.Algorithm
		op          string
		cost        int64
		most        time.Duration // that the key must live for
	}{
		{
			"block", core.Block{Strikes: 9, Within: 30 * time.Hour, For: time.Hour},
			core.Block{Strikes: 9, Within: time.Second, For: time.Second}, "decide", 9, 2 * time.Hour,
		},
		{
			"debt", core.FixedWindow{Limit: 1, Window: time.Hour}, core.FixedWindow{Limit: 50, Window: time.Hour},
			"force", 90, 80 * time.Hour,
		},
	} {
		redistest.Each(t, func(t *testing.T, s *redistest.Server) {
			client := s.Client(t)
			g := redisGate(t, client, core.Config{Prefix: s.Prefix})
			c := core.Charge{
				Policy: newPolicy(t, core.PolicyConfig{Name: test.name, Algorithm: changing(test.long, test.short)}),
				Key:    newKey(t, "k"), Cost: test.cost, Limit: test.long,
			}
			charged := gatetest.Must(g.NewRequest(test.op, 0, c))(t)
			c.Limit, c.Cost = test.short, 1
			asked := gatetest.Must(g.NewRequest("reserve", 1, c))(t) // denied
			if _, _, err := g.DecideShared(t.Context(), []*core.ScriptRequest{charged, asked}); err != nil {
				t.Fatal(err)
			}
			name := client.Keys(t.Context(), s.Prefix+"*").Val()[0]
			if ttl := client.PTTL(t.Context(), name).Val(); ttl < test.most {
				t.Errorf("%s: the key lives for %v, not for %v", test.name, ttl, test.most)
			}
		})
	}
}
