package core_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
)

// Tokens rise from grant to grant though the clock steps back while nobody holds a slot, whatever
// ended the last lease.
func TestTokensRiseWhenClockStepsBack(t *testing.T) {
	const ttl = time.Hour
	type end func(t *testing.T, s *semaphore.Semaphore, c *core.ManualClock) (last *semaphore.Lease)
	one := func(t *testing.T, s *semaphore.Semaphore) *semaphore.Lease {
		l := acquire(t, s, semaphore.Cap{Key: newKey(t, "k"), Limit: 2})
		t.Cleanup(func() { _ = l.Release(t.Context()) })
		return l
	}
	ends := map[string]end{
		"released": func(t *testing.T, s *semaphore.Semaphore, _ *core.ManualClock) *semaphore.Lease {
			l := one(t, s)
			release(t, l)
			return l
		},
		"released twice": func(t *testing.T, s *semaphore.Semaphore, _ *core.ManualClock) *semaphore.Lease {
			release(t, one(t, s))
			l := one(t, s)
			release(t, l)
			return l
		},
		"renewed": func(t *testing.T, s *semaphore.Semaphore, c *core.ManualClock) *semaphore.Lease {
			l := one(t, s)
			c.Advance(time.Minute)
			noError(t, l.Extend(t.Context()))
			release(t, l)
			return l
		},
		"beside another": func(t *testing.T, s *semaphore.Semaphore, _ *core.ManualClock) *semaphore.Lease {
			l, last := one(t, s), one(t, s)
			release(t, last, l)
			return last
		},
		"evicted": func(t *testing.T, s *semaphore.Semaphore, c *core.ManualClock) *semaphore.Lease {
			l, k := one(t, s), newKey(t, "k")
			holders, _, err := s.Holders(t.Context(), k)
			if err != nil || len(holders) != 1 {
				t.Fatal(holders, err)
			}
			gatetest.Must(s.Evict(t.Context(), k, holders[0].ID))(t)
			c.Advance(3 * ttl) // the mark of the eviction has ended
			return l
		},
		"expired": func(t *testing.T, s *semaphore.Semaphore, c *core.ManualClock) *semaphore.Lease {
			l := one(t, s)
			c.Advance(2 * ttl)
			return l
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
				s := newSemaphore(t, g, semaphore.Config{TTL: ttl})
				for _, step := range []time.Duration{time.Microsecond, 2 * time.Second, time.Hour, 30 * 24 * time.Hour} {
					last := end(t, s, c)
					c.Advance(-step)
					l := one(t, s)
					if l.Token() <= last.Token() {
						t.Errorf("%v back: token %d after %d", step, l.Token(), last.Token())
					}
					release(t, l)
				}
			})
		})
	}
}

// A user's slot whose holder died is free, also beside more dead holders than one script drops.
func TestSlotBesideManyDeadHoldersIsFree(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		s := newSemaphore(t, g, semaphore.Config{TTL: time.Hour})
		p := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: core.PerSecond(100)})
		user := func(i int) []semaphore.Cap {
			return []semaphore.Cap{{Key: newKey(t, "all"), Limit: 200}, {Key: newKey(t, "all", strconv.Itoa(i)), Limit: 1}}
		}
		for round := range 2 {
			for i := range 100 {
				acquire(t, s, user(i)...)
			}
			c.Advance(2 * time.Hour)
			ask := semaphore.Request{Caps: user(99)}
			if round == 0 {
				release(t, gatetest.Must(s.Acquire(t.Context(), ask))(t))
				c.Advance(2 * time.Hour)
				continue
			}
			if l, d, err := s.Admit(t.Context(), ask, core.Charge{Policy: p, Key: newKey(t, "all")}); l == nil {
				t.Errorf("%s, %v", show(d), err)
			}
		}
	})
}
