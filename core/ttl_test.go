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

// The key of sessions lives as long as the longest of them, also beside a bucket that refills, and
// so do the holds.
func TestKeyOutlivesItsSessions(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client := s.Client(t)
		g := redisGate(t, client, core.Config{Prefix: s.Prefix, DisableDenialCache: true})
		key, longest := newKey(t, "run"), 50*time.Hour
		session := func(name string, lifetime, hold time.Duration) core.Charge {
			return core.Charge{Key: key, Policy: newPolicy(t, core.PolicyConfig{
				Name: name, Algorithm: core.TokenBucket{Burst: 1000, Per: lifetime}, Hold: hold,
			})}
		}
		charges := []core.Charge{
			session("long", longest, 0), session("short", time.Hour, 0), session("held", time.Hour, time.Minute),
			{Key: key, Policy: limited(t, "minute", core.PerMinute(1000))},
		}
		for i := range 2 * len(charges) {
			reservation, d, err := g.Reserve(t.Context(), 0, charges[i%len(charges)])
			if err != nil || !d.Allowed {
				t.Fatal(show(d), err)
			}
			noError(t, reservation.Settle(t.Context(), 2))
			decide(t, g, charges...)
			for _, name := range client.Keys(t.Context(), s.Prefix+"*").Val() {
				if ttl := client.PTTL(t.Context(), name).Val(); ttl < longest || ttl > longest+time.Minute {
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
