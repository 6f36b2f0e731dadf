package semaphore_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// An evicted holder loses its lease under every LossPolicy, whether or not a message tells it.
func TestEvictedHolderLosesItsLease(t *testing.T) {
	t.Parallel()
	renewals := map[string]func(t *testing.T, l *semaphore.Lease){
		"in the background": func(*testing.T, *semaphore.Lease) {},
		"by Extend": func(t *testing.T, l *semaphore.Lease) {
			gatetest.Is(t, l.Extend(t.Context()), semaphore.ErrLeaseLost, "extended")
		},
	}
	for name, extend := range renewals {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			do(t, s.Client(t), "ACL", "SETUSER", "default", "-publish") // no message is published
			g := redisGate(t, s.Client(t), core.Config{})
			key := newKey(t, "k")
			for _, loss := range []semaphore.LossPolicy{semaphore.LossCancel, semaphore.LossAdopt} {
				sem := newSemaphore(t, g, semaphore.Config{TTL: time.Second, OnLoss: loss})
				l := acquire(t, sem, semaphore.Cap{Key: key, Limit: 1})
				evict(t, sem, key)
				extend(t, l)
				select {
				case <-l.Lost():
				case <-time.After(longTimeout):
					t.Errorf("policy %d: the lease is not lost", loss)
				}
				if holders, _, err := sem.Holders(t.Context(), key); len(holders) > 0 || err != nil {
					t.Errorf("policy %d: %+v, %v", loss, holders, err)
				}
				release(t, l)
			}
			worked(t, g.Close(t.Context()))
			if left := redistest.Keys(t, s.Client(t), "*"); len(left) > 0 {
				t.Errorf("keys remain: %v", left)
			}
		})
	}
}

// A holder that did not wait for its slot learns of its eviction at once, not at the next renewal.
func TestEvictedHolderIsNotifiedAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := newSemaphore(t, redisGate(t, server.Client(t), core.Config{}), semaphore.Config{TTL: time.Hour})
	other := newSemaphore(t, redisGate(t, server.Client(t), core.Config{}), semaphore.Config{TTL: time.Hour})
	level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
	l := acquire(t, s, level)
	waitSubscribed(t, server)
	evict(t, other, level.Key)
	<-l.Lost()
	<-l.Context().Done()
	gatetest.Is(t, context.Cause(l.Context()), semaphore.ErrLeaseLost, "got")
}

// Evict with an ID that no holder has evicts nobody, whatever other data Redis has under that name,
// and costs no slot.
func TestEvictOfUnknownID(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		sem := newSemaphore(t, g, semaphore.Config{TTL: time.Hour})
		brief := newSemaphore(t, g, semaphore.Config{TTL: time.Second})
		level := semaphore.Cap{Key: newKey(t, "k"), Limit: 2}
		l := acquire(t, sem, level)
		for _, id := range []string{"scope", "u:{k}", "n:{k}", "!x", "", "a b"} {
			// This lease expires, and the next call drops it.
			gatetest.Must(brief.Enqueue(t.Context(), semaphore.Request{Caps: []semaphore.Cap{level}}))(t)
			c.Advance(2 * time.Second)
			if n, err := sem.Evict(t.Context(), level.Key, id); n != 0 || err != nil {
				t.Errorf("%q: %d, %v", id, n, err)
			}
			next, err := sem.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{level}})
			if err != nil {
				t.Errorf("after %q: %v", id, err)
			}
			release(t, next)
		}
		release(t, l)
	})
}

// Callers that place a key below different parents, and leave, block nobody after them.
func TestKeyWithTwoParents(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		s := newSemaphore(t, g, semaphore.Config{})
		level := func(parts ...string) semaphore.Cap {
			return semaphore.Cap{Key: newKey(t, "acme", parts...), Limit: 1}
		}
		tenant, team, other, user := level(), level("team"), level("other"), level("user")
		wait := func(levels ...semaphore.Cap) string {
			return gatetest.Must(s.Enqueue(t.Context(), semaphore.Request{Caps: levels}))(t)
		}
		leave := func(ids ...string) {
			for _, id := range ids {
				worked(t, s.Leave(t.Context(), tenant.Key, id))
			}
		}
		held := acquire(t, s, tenant)
		first, second := wait(tenant, team, user), wait(tenant, other, user)
		third := wait(tenant)
		leave(first, second)
		release(t, held)
		wantFull(t, s, "third has the slot", tenant)
		leave(wait(tenant, team, user), wait(tenant, other, user))
		fourth := wait(tenant)
		leave(wait(tenant, team), fourth, third)
	})
}

// Metadata that is too long is cut. Every value keeps its share, whichever value is too long.
func TestLongMetaIsCut(t *testing.T) {
	long := strings.Repeat("ü b", 1000)
	for name, tt := range map[string]struct{ meta map[string]string }{
		"one long":        {map[string]string{"a": long}},
		"long and short":  {map[string]string{"a": long, "b": "short"}},
		"two long":        {map[string]string{"a": long, "b": long}},
		"not UTF-8":       {map[string]string{"a": strings.Repeat("\xff", 1000), "b": "short"}},
		"long key":        {map[string]string{long: "a", "b": "short"}},
		"only a long key": {map[string]string{long: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := memoryGate(t, core.Config{})
			sem := newSemaphore(t, g, semaphore.Config{})
			level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
			l := gatetest.Must(sem.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{level}, Meta: tt.meta}))(t)
			took, kept := 0, onlyHolder(t, sem, level.Key).Meta
			for k, v := range kept {
				took += len(url.QueryEscape(k)) + len(url.QueryEscape(v)) + 2
				if whole := strings.ToValidUTF8(tt.meta[k], "\uFFFD"); !utf8.ValidString(v) || len(v) < 50 && v != whole || whole == tt.meta[k] && !strings.HasPrefix(whole, v) {
					t.Errorf("%q is %q", k, v)
				}
			}
			if took > 1025 || took < 500 && tt.meta["a"] == long || tt.meta["b"] == "short" && kept["b"] != "short" {
				t.Errorf("%d bytes: %v", took, kept)
			}
			release(t, l)
		})
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

		gatetest.Equal(t, len(gatetest.Must(s.Usage(t.Context()))(t)), 0, "no keys")
		for name, keys := range map[string][]core.Key{"zero": {{}}, "second is zero": {tenant, {}}, "two tenants": {tenant, newKey(t, "globex")}} {
			if used, err := s.Usage(t.Context(), keys...); !errors.Is(err, core.ErrKey) || used != nil {
				t.Errorf("%s: %v, %v", name, used, err)
			}
		}
	})
}
