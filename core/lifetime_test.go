package core_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// A key outlives the state that it holds, by a second at least and not by much more than it was moved without being told.
func TestKeyOutlivesItsState(t *testing.T) {
	ctx := t.Context()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client := s.Client(t)
		g := redisGate(t, client, core.Config{Prefix: s.Prefix})
		p := limited(t, "p", core.TokenBucket{Rate: 1_000_000, Per: time.Second, Burst: 10_000_000_000})
		charge := core.Charge{Policy: p, Key: newKey(t, "k")}
		moved := 0
		var before time.Duration
		for range rounds(t, 400) {
			charge.Cost = 1 + rand.Int64N(3_000_000)
			decide(t, g, charge)
			name := client.Keys(ctx, s.Prefix+"*").Val()[0]
			arrival, err := client.Get(ctx, name).Int64()
			if err != nil {
				t.Fatal(err)
			}
			at, err := client.PExpireTime(ctx, name).Result()
			if err != nil {
				t.Skipf("tells no time at which a key expires: %v", err) // before Redis 7
			}
			if most := time.Duration(arrival) * time.Microsecond; at < most+999*time.Millisecond || at > most+10*time.Second {
				t.Fatalf("holds %v, and lives until %v", most, at)
			}
			if at == before {
				moved++
			}
			before = at
		}
		if s.Real && moved == 0 {
			t.Error("is given another time to live each time")
		}
	})
}

// A number that Redis takes for none is written anew.
func TestNumberOfOthersIsWrittenAnew(t *testing.T) {
	ctx := t.Context()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client := s.Client(t)
		g := redisGate(t, client, core.Config{Prefix: s.Prefix})
		charge := core.Charge{Policy: limited(t, "p", core.TokenBucket{Rate: 1_000_000, Per: time.Second, Burst: 10_000_000_000}), Key: newKey(t, "k"), Cost: 1_000_000}
		decide(t, g, charge)
		name := client.Keys(ctx, s.Prefix+"*").Val()[0]
		value := client.Get(ctx, name).Val()
		for _, other := range []string{"0" + value, value + ".0", " " + value} {
			if err := client.Set(ctx, name, other, time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
			charge.Cost = 1
			d := decide(t, g, charge)
			if got := client.Get(ctx, name).Val(); !d.Allowed || strings.Trim(got, "0123456789") != "" || len(got) != len(value) {
				t.Errorf("%q became %q", other, got)
			}
			if ttl := client.PTTL(ctx, name).Val(); ttl <= 0 {
				t.Errorf("lives for %v", ttl)
			}
		}
	})
}
