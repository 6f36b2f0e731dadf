package semaphore_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// While Redis is down nobody knows what holders take.
func TestUsageDuringOutage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, Timeout: shortTimeout})
	sem := newSemaphore(t, g, semaphore.Config{})
	s.Stop()
	if used, err := sem.Usage(t.Context(), newKey(t, "acme")); err == nil || used != nil {
		t.Errorf("slots: %v, %v", err, used)
	}
}

// Holders count at each of their levels by their weight. Waiters and holders whose lease has ended
// do not count.
func TestSemaphoreUsage(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		s := newSemaphore(t, g, semaphore.Config{TTL: time.Hour})
		tenant, ann, bob := newKey(t, "acme"), newKey(t, "acme", "ann"), newKey(t, "acme", "bob")
		levels := func(user core.Key, weight int64) semaphore.Request {
			return semaphore.Request{Caps: []semaphore.Cap{{Key: tenant, Limit: 5, Weight: 1}, {Key: user, Limit: 4, Weight: weight}}}
		}
		check := func(want ...int64) {
			t.Helper()
			if used, err := s.Usage(t.Context(), ann, tenant, bob); err != nil || !slices.Equal(used, want) {
				t.Errorf("%v, %v, want %v", used, err, want)
			}
		}
		check(0, 0, 0)
		for _, weight := range []int64{1, 3} {
			l := gatetest.Must(s.Acquire(t.Context(), levels(ann, weight)))(t)
			defer release(t, l)
		}
		l := gatetest.Must(s.Acquire(t.Context(), levels(bob, 2)))(t)
		check(4, 3, 2)
		gatetest.Must(s.Enqueue(t.Context(), levels(ann, 1)))(t)
		check(4, 3, 2)
		release(t, l)
		check(4, 2, 0)
		c.Advance(2 * time.Hour)
		check(0, 0, 0)

		if used, err := s.Usage(t.Context()); err != nil || len(used) != 0 {
			t.Errorf("no keys: %v, %v", used, err)
		}
		for name, keys := range map[string][]core.Key{"zero": {{}}, "second is zero": {tenant, {}}, "two tenants": {tenant, newKey(t, "globex")}} {
			if used, err := s.Usage(t.Context(), keys...); !errors.Is(err, core.ErrKey) || used != nil {
				t.Errorf("%s: %v, %v", name, used, err)
			}
		}
	})
}
