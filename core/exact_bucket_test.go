package core_test

import (
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// exactBucket is a token bucket in rational arithmetic. It counts refilled tokens instead of a
// backlog.
type exactBucket struct {
	rate, burst, tokens *big.Rat // rate is in tokens per microsecond
	at                  int64
}

func newExactBucket(b core.TokenBucket, now int64) *exactBucket {
	burst := new(big.Rat).SetInt64(b.Burst)
	return &exactBucket{
		rate:  big.NewRat(b.Rate*1000, int64(b.Per)),
		burst: burst, tokens: new(big.Rat).Set(burst), at: now,
	}
}

// wait returns the microseconds until that many tokens are there, rounded up.
func (e *exactBucket) wait(tokens *big.Rat) int64 {
	if e.tokens.Cmp(tokens) >= 0 {
		return 0
	}
	missing := new(big.Rat).Sub(tokens, e.tokens)
	missing.Quo(missing, e.rate)
	up := new(big.Int).Add(missing.Num(), new(big.Int).Sub(missing.Denom(), big.NewInt(1)))
	return up.Quo(up, missing.Denom()).Int64()
}

// exactAnswer is the expected content of a Result. Waits are in microseconds.
type exactAnswer struct {
	allowed                bool
	remaining              int64
	retry, next, whenWhole int64
}

func (e *exactBucket) decide(now, n int64) (a exactAnswer) {
	e.tokens.Add(e.tokens, new(big.Rat).Mul(e.rate, new(big.Rat).SetInt64(now-e.at)))
	if e.tokens.Cmp(e.burst) > 0 {
		e.tokens.Set(e.burst)
	}
	e.at = now
	cost := new(big.Rat).SetInt64(n)
	a.retry = e.wait(cost)
	if a.allowed = a.retry == 0; a.allowed {
		e.tokens.Sub(e.tokens, cost)
	}
	a.remaining = new(big.Int).Quo(e.tokens.Num(), e.tokens.Denom()).Int64()
	if e.tokens.Cmp(e.burst) < 0 {
		a.next = e.wait(new(big.Rat).SetInt64(a.remaining + 1))
	}
	a.whenWhole = e.wait(e.burst)
	return a
}

var exactRates = []struct {
	name string
	rate int64
	per  time.Duration
}{
	{"1 in 30 days", 1, 30 * 24 * time.Hour},
	{"7 a second", 7, time.Second},
	{"999,983 a day", 999_983, 24 * time.Hour},
	{"300,000 a second", 300_000, time.Second},
	{"1,000,000 a second", 1_000_000, time.Second},
}

func TestTokenBucketIsExact(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		polls := 150
		switch inMemory := peek(t, g, core.Charge{Policy: limited(t, "p", core.PerSecond(1)), Key: newKey(t, "k"), Cost: core.NoCost}).Source == core.SourceMemory; {
		case inMemory && long():
			polls = 1_000_000
		case inMemory:
			polls = 5000
		case long():
			polls = 5000
		}
		for _, r := range exactRates {
			for _, burst := range []int64{1, 2, 7, 1000, 1_000_000} {
				if r.rate == 1 && burst > 1000 {
					continue // it takes more than 100 years to refill
				}
				c.Set(time.UnixMicro(epoch))
				seed := rand.Uint64()
				limit := core.TokenBucket{Rate: r.rate, Per: r.per, Burst: burst}
				if err := runExact(t, g, c, limit, polls, rand.New(rand.NewPCG(seed, 0))); err != nil {
					t.Errorf("%s, burst %d, seed %d: %v", r.name, burst, seed, err)
				}
			}
		}
	})
}

func runExact(t *testing.T, g *core.Gate, c *core.ManualClock, limit core.TokenBucket, polls int, rng *rand.Rand) error {
	charge := core.Charge{Policy: limited(t, fmt.Sprintf("r%d-b%d", limit.Rate, limit.Burst), limit), Key: newKey(t, "exact"), Cost: core.NoCost}
	exact := newExactBucket(limit, c.Now().UnixMicro())
	token := limit.Per.Microseconds()/limit.Rate + 1
	for i := range polls {
		if c.Now().Year() > 2050 {
			break // see TestLargestNumbersAreExact
		}
		charge.Cost = 1
		if rng.IntN(4) == 0 {
			charge.Cost += rng.Int64N(limit.Burst)
		}
		want := exact.decide(c.Now().UnixMicro(), charge.Cost)
		d := decide(t, g, charge)
		r := d.At(0)
		got := exactAnswer{
			r.Allowed, r.Remaining, r.RetryAfter.Microseconds(), r.NextAfter.Microseconds(), r.ResetAfter.Microseconds(),
		}
		if got != want {
			return fmt.Errorf("decision %d of cost %d at %d: %+v, want %+v", i, charge.Cost, c.Now().UnixMicro(), got, want)
		}
		switch rng.IntN(8) {
		case 0, 1: // no wait
		case 2, 3: // the announced wait
			c.Advance(time.Duration(want.retry) * time.Microsecond)
		case 4: // 1 µs too early
			c.Advance(time.Duration(max(0, want.retry-1)) * time.Microsecond)
		case 5:
			c.Advance(time.Duration(rng.Int64N(3*token)) * time.Microsecond)
		case 6:
			c.Advance(time.Duration(rng.Int64N(1000)) * time.Microsecond)
		case 7:
			c.Advance(time.Duration(rng.Int64N(max(1, want.whenWhole))) * time.Microsecond)
		}
	}
	return nil
}

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
