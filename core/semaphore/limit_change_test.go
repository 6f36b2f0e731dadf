package semaphore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
)

// queue acquires in the background, and returns once the caller waits or has its slot.
func queue(
	t *testing.T, ctx context.Context, s *semaphore.Semaphore, caps ...semaphore.Cap,
) <-chan *semaphore.Lease {
	t.Helper()
	leases, queued := make(chan *semaphore.Lease, 1), make(chan struct{}, 100)
	go func() {
		l, err := s.Acquire(ctx, semaphore.Request{
			Caps: caps, MaxWait: longTimeout, OnQueue: func(int) { queued <- struct{}{} },
		})
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		leases <- l
		queued <- struct{}{} // also if it was not queued
	}()
	<-queued
	return leases
}

// A raised limit lets the callers in that wait under the old one, also at an outer cap.
func TestRaisedLimitReachesWaiters(t *testing.T) {
	t.Parallel()
	eachLeaseGate(t, func(t *testing.T, g *core.Gate) {
		s := newSemaphore(t, g, semaphore.Config{})
		for name, caps := range map[string]func(limit int64, user string) []semaphore.Cap{
			"one": func(limit int64, _ string) []semaphore.Cap {
				return []semaphore.Cap{{Key: newKey(t, "one"), Limit: limit}}
			},
			"outer": func(limit int64, user string) []semaphore.Cap {
				return []semaphore.Cap{{Key: newKey(t, "outer"), Limit: limit}, {Key: newKey(t, "outer", user), Limit: 5}}
			},
		} {
			held := acquire(t, s, caps(1, "a")...)
			old := queue(t, t.Context(), s, caps(1, "a")...)
			raised := acquire(t, s, caps(5, "b")...)
			l := <-old
			if l == nil {
				t.Fatalf("%s: the old waiter got no slot", name)
			}
			release(t, held, raised, l)
		}
	})
}

// A lowered limit ends no lease, and admits nobody until there is room under it.
func TestLoweredLimitAdmitsNobody(t *testing.T) {
	t.Parallel()
	eachLeaseGate(t, func(t *testing.T, g *core.Gate) {
		s := newSemaphore(t, g, semaphore.Config{})
		level := func(limit int64) semaphore.Cap { return semaphore.Cap{Key: newKey(t, "k"), Limit: limit} }
		try := func() (*semaphore.Lease, error) {
			return s.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{level(2)}})
		}
		a, b, c := acquire(t, s, level(5)), acquire(t, s, level(7)), acquire(t, s, level(7))
		var full *semaphore.FullError
		if _, err := try(); !errors.As(err, &full) || full.InUse != 3 || full.Limit != 2 {
			t.Errorf("3 held: %v", err)
		}
		release(t, a)
		if _, err := try(); !errors.As(err, &full) {
			t.Errorf("2 held: %v", err)
		}
		release(t, b)
		l, err := try()
		if err != nil {
			t.Errorf("1 held: %v", err)
		}
		release(t, c, l)
	})
}

// Callers behind a heavy waiter that leaves get the room that it waited for.
func TestFrontWaiterLeaves(t *testing.T) {
	t.Parallel()
	eachLeaseGate(t, func(t *testing.T, g *core.Gate) {
		s := newSemaphore(t, g, semaphore.Config{})
		level := func(user string, weight int64) []semaphore.Cap {
			return []semaphore.Cap{
				{Key: newKey(t, "t"), Limit: 4, Weight: weight}, {Key: newKey(t, "t", user), Limit: 4, Weight: weight},
			}
		}
		for _, users := range [][3]string{{"a", "a", "a"}, {"x", "y", "z"}} {
			held := acquire(t, s, level(users[0], 3)...)
			ctx, cancel := context.WithCancel(t.Context())
			heavy := queue(t, ctx, s, level(users[1], 2)...)
			light := queue(t, t.Context(), s, level(users[2], 1)...)
			cancel()
			l := <-light
			if l == nil || <-heavy != nil {
				t.Error("the light one got no slot, or the heavy one did")
			}
			release(t, held, l)
		}
	})
}
