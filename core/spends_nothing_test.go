package core_test

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// snapshot returns everything that a store holds, byte for byte, with the expiry times of the keys.
type snapshot func(t *testing.T) map[string]string

func redisSnapshot(client *redis.Client, s *redistest.Server) snapshot {
	return func(t *testing.T) map[string]string {
		t.Helper()
		ctx := t.Context()
		all := make(map[string]string)
		for _, name := range client.Keys(ctx, s.Prefix+"*").Val() {
			if !s.Real {
				// The TTLs of a miniredis do not count down.
				all[name] = fmt.Sprint(client.Get(ctx, name).Val(), client.PTTL(ctx, name).Val())
				continue
			}
			// The absolute expiry time, in milliseconds, does not count down either.
			at, err := client.PExpireTime(ctx, name).Result()
			if err != nil {
				t.Logf("no expiry times: %v", err) // before Redis 7
			}
			all[name] = fmt.Sprintf("%q %d", client.Dump(ctx, name).Val(), at)
		}
		return all
	}
}

func eachStore(t *testing.T, f func(t *testing.T, g *core.Gate, c *core.ManualClock, takeSnapshot snapshot)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		c := newClock()
		g := memoryGate(t, core.Config{Clock: c.Now})
		f(t, g, c, func(*testing.T) map[string]string { return g.Values() })
	})
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		c := newClock()
		client := s.Client(t)
		g := redisGate(t, client, core.Config{Prefix: s.Prefix, DisableDenialCache: true})
		g.InjectClock(micros(c))
		f(t, g, c, redisSnapshot(client, s))
	})
}

// spendsNothing reports the keys that a call changed. The call must not change any.
func spendsNothing(t *testing.T, takeSnapshot snapshot, what string, call func() bool) {
	t.Helper()
	before := takeSnapshot(t)
	if !call() {
		t.Errorf("%s: unexpected outcome", what)
	}
	if after := takeSnapshot(t); !maps.Equal(before, after) {
		t.Errorf("%s changed\n%v\nto\n%v", what, before, after)
	}
}

// Each algorithm denies at every position, beside every other algorithm on the key of a tenant and on
// that of its user. Its denial creates no fresh key and changes no used one.
func TestDenialSpendsNothing(t *testing.T) {
	t.Parallel()
	others := append(limitsOfTen[:len(limitsOfTen):len(limitsOfTen)], namedLimit{"unlimited", core.Unlimited{}}, limitsOfTen[0])
	deniers := append(limitsOfTen[:len(limitsOfTen):len(limitsOfTen)], namedLimit{"deny all", core.DenyAll{}})
	const policies = 5
	eachStore(t, func(t *testing.T, g *core.Gate, c *core.ManualClock, takeSnapshot snapshot) {
		ctx, n := t.Context(), 0
		for _, denier := range deniers {
			for at := range policies {
				for from := 0; from < len(others); from += policies - 1 {
					if n++; n%3 != 0 && !strings.Contains(t.Name(), "memory") {
						continue
					}
					used := n%2 == 0
					keys := []core.Key{newKey(t, "t", strconv.Itoa(n)), newKey(t, "t", strconv.Itoa(n), "u")}
					rest := others[from:]
					var charges []core.Charge
					what := "used " + strconv.FormatBool(used)
					for i := range policies {
						l := denier
						if i != at {
							l, rest = rest[0], rest[1:]
						}
						what += ", " + l.name
						charges = append(charges, core.Charge{Policy: limited(t, fmt.Sprintf("p%d", i), l.algorithm), Key: keys[i%2], Cost: 1})
					}
					for i, charge := range charges {
						if i == at {
							charge.Cost = 10
						} else if !used {
							continue
						}
						decide(t, g, charge)
					}
					c.Advance(time.Second)
					named := func(d core.Decision) bool {
						for i := range charges {
							if r := d.At(i); r.Allowed != (i != at) || (r.RetryAfter > 0) != (i == at) {
								t.Errorf("%s: %s", what, show(d))
								break
							}
						}
						return !d.Allowed
					}
					spendsNothing(t, takeSnapshot, "Decide, "+what, func() bool { return named(decide(t, g, charges...)) })
					spendsNothing(t, takeSnapshot, "Peek, "+what, func() bool { return named(peek(t, g, charges...)) })
					spendsNothing(t, takeSnapshot, "SpendUpTo, "+what, func() bool {
						granted, d, err := atMost(g, ctx, charges...)
						return named(d) && granted == 0 && err == nil
					})
					spendsNothing(t, takeSnapshot, "Reserve, "+what, func() bool {
						// Within this time the one unit in a used queue leaks, but an empty bucket
						// gains no token.
						r, d, err := g.Reserve(ctx, 10*time.Minute, charges...)
						return named(d) && r == nil && err == nil
					})
					for _, charge := range charges {
						noError(t, g.Reset(ctx, core.Charge{Policy: charge.Policy, Key: charge.Key}))
					}
				}
			}
		}
		if all := takeSnapshot(t); len(all) > 0 {
			t.Errorf("keys remain: %v", all)
		}
	})
}

func TestNoKeyIsCreatedWithoutSpending(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock, takeSnapshot snapshot) {
		key := newKey(t, "fresh")
		p, q := limited(t, "p", core.PerSecond(3)), limited(t, "q", frozen(3))
		shadow := newPolicy(t, core.PolicyConfig{Name: "s", Algorithm: core.PerSecond(3), Shadow: true})
		charges := func(cost int64) []core.Charge {
			return []core.Charge{{Policy: p, Key: key, Cost: 1}, {Policy: q, Key: key, Cost: cost}, {Policy: shadow, Key: key, Cost: 1}}
		}
		spendsNothing(t, takeSnapshot, "a denial", func() bool { return !decide(t, g, charges(4)...).Allowed })
		spendsNothing(t, takeSnapshot, "a peek that denies", func() bool { return !peek(t, g, charges(4)...).Allowed })
		spendsNothing(t, takeSnapshot, "a peek that allows", func() bool { return peek(t, g, charges(1)...).Allowed })
		spendsNothing(t, takeSnapshot, "costs of 0", func() bool {
			return decide(t, g, core.Charge{Policy: p, Key: key, Cost: core.NoCost}, core.Charge{Policy: q, Key: key, Cost: core.NoCost}).Allowed
		})
		spendsNothing(t, takeSnapshot, "a shadow that does not fit", func() bool {
			return decide(t, g, core.Charge{Policy: shadow, Key: key, Cost: 4}).Allowed
		})
		if all := takeSnapshot(t); len(all) > 0 {
			t.Errorf("keys were created: %v", all)
		}
	})
}

// A denied reservation marks only the charges that deny. The others are allowed and have no wait,
// in whatever script they are decided.
func TestDeniedReservationNamesOnlyDenyingCharges(t *testing.T) {
	t.Parallel()
	for _, split := range []bool{false, true} {
		eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
			if split {
				g.SplitByOutermost()
			}
			key, other := newKey(t, fmt.Sprint(split)), newKey(t, fmt.Sprint(split, "other"))
			later := core.Charge{Policy: limited(t, "later", core.PerMinute(1)), Key: key, Cost: 1}
			decide(t, g, later)
			empty := core.Charge{Policy: limited(t, "empty", frozen(1)), Key: other, Cost: 1}
			decide(t, g, empty)
			decide(t, g, empty) // the policy that denied last is asked first
			for _, denier := range []core.Charge{empty, {Policy: limited(t, "none", core.DenyAll{}), Key: key, Cost: 1}} {
				r, d := reserve(t, g, time.Hour, later, denier)
				if first := d.At(0); r != nil || !first.Allowed || first.RetryAfter != 0 || d.At(1).Allowed {
					t.Errorf("split %v, %s: %s", split, denier.Policy.Name(), show(d))
				}
			}
		})
	}
}

func TestDenialNamesEveryDenyingPolicy(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		for _, split := range []bool{false, true} {
			if split {
				g.SplitByOutermost()
			}
			var charges []core.Charge
			for i := range 6 {
				limit := core.TokenBucket{Rate: 1, Per: time.Duration(i+1) * time.Minute, Burst: int64(1 + i%2)}
				charges = append(charges, core.Charge{
					Policy: limited(t, fmt.Sprintf("p%d", i), limit), Key: newKey(t, fmt.Sprint(split, i/2)), Cost: 1,
				})
			}
			decide(t, g, charges...)
			d, err := g.Decide(context.Background(), charges...)
			if err != nil || d.Allowed {
				t.Fatal(show(d), err)
			}
			for i := range d.Len() {
				if r := d.At(i); r.Allowed != (i%2 == 1) {
					t.Errorf("split %v: result %d: %+v", split, i, r)
				}
			}
			// The slowest policy that denies is number 4, which waits for 5 minutes.
			if wait := d.RetryAfter(); wait != 5*time.Minute {
				t.Errorf("split %v: wait %v", split, wait)
			}
		}
	})
}
