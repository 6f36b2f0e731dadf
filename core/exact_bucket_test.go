package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// The largest numbers that a script can meet are exact: the longest capacity and the finest
// fraction, refunded until the remembered refunds reach their cap, at the end of 2050.
func TestLargestNumbersAreExact(t *testing.T) {
	t.Parallel()
	const (
		exact   = 1 << 53
		century = 36525 * 24 * 3600 * 1_000_000 // microseconds
		now     = 2_556_143_999_000_000         // the end of 2050
		back    = 2 * 3600 * 1_000_000          // the largest step back of the clock
		finest  = 1000 << 42                    // the largest denominator
	)
	for name, sum := range map[string]int64{
		"receipt: arrival and refunds":        now + century + century,
		"backlog and cost":                    century + century,
		"refunds, and a backlog beyond reach": century + century + back,
		"two fractions before the carry":      2*finest - 1,
		"twice a sum that SpendUpTo keeps":    century + century,
		"TTL in milliseconds":                 century/1000 + 86_400_000,
	} {
		if sum >= exact {
			t.Errorf("%s: %d is above 2^53 by %d", name, sum, sum-exact)
		}
	}

	policies := []core.PolicyConfig{
		{Name: "longest", Algorithm: core.TokenBucket{Rate: 1, Per: 36525*24*time.Hour - 1000, Burst: 1}},
		{Name: "longest-many", Algorithm: core.TokenBucket{Rate: 1_000_003, Per: 36524 * 24 * time.Hour, Burst: 1_000_003}},
		{Name: "finest", Algorithm: core.TokenBucket{Rate: 1 << 42, Per: 999_999_999, Burst: 1 << 42}},
		{Name: "finest-slow", Algorithm: core.TokenBucket{Rate: 1<<42 - 1, Per: 36524 * 24 * time.Hour, Burst: 1<<42 - 1}},
	}
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		seed := rand.Uint64()
		l := newLockstep(t, s, seed)
		l.redis.SplitByOutermost()
		l.memory.SplitByOutermost()
		l.clock.Set(time.UnixMicro(now - century/50))
		var own [2][]*core.Policy
		for _, cfg := range policies {
			l.knows(cfg.Name)
			for i := range own {
				own[i] = append(own[i], newPolicy(t, cfg))
			}
		}
		a, b := newKey(t, "a"), newKey(t, "b")
		for n := range 600 {
			at, deny := l.rng.IntN(len(policies)), l.rng.IntN(4) > 0
			cost := policies[at].Algorithm.(core.TokenBucket).Burst
			switch {
			case n < 3*len(policies): // the whole burst, repeatedly, while nothing is kept yet
				at, deny = n%len(policies), true
				cost = policies[at].Algorithm.(core.TokenBucket).Burst
			case l.rng.IntN(2) == 0:
				cost = 1 + l.rng.Int64N(cost)
			}
			var seen [2]string
			for i, g := range []*core.Gate{l.redis, l.memory} {
				charges := []core.Charge{{Policy: own[i][at], Key: a, Cost: cost}}
				if deny {
					// A policy that has not denied yet goes last, so that the earlier part is
					// refunded.
					charges = append(charges, core.Charge{Policy: limited(t, "shut", core.PerSecond(1)), Key: b, Cost: 2})
				}
				d, err := g.Decide(context.Background(), charges...)
				seen[i] = fmt.Sprint(show(d), err)
			}
			if seen[0] != seen[1] {
				t.Fatalf("seed %d, operation %d:\nredis:  %s\nmemory: %s", seed, n, seen[0], seen[1])
			}
			l.compareStates()
			if l.rng.IntN(3) == 0 {
				l.clock.Advance(time.Duration(l.rng.Int64N(century/50/600*2)-back/1000) * time.Microsecond)
			}
		}
	})
}
