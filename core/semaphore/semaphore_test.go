package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// eachLeaseGate runs f on a Gate in memory and on one on every Redis, each on its own clock, and
// closes them.
func eachLeaseGate(t *testing.T, f func(t *testing.T, g *core.Gate)) {
	t.Helper()
	eachLeaseGateWith(t, core.Config{}, f)
}

// eachLeaseGateWith is eachLeaseGate with a configuration.
func eachLeaseGateWith(t *testing.T, cfg core.Config, f func(t *testing.T, g *core.Gate)) {
	t.Helper()
	runAndClose := func(t *testing.T, g *core.Gate) {
		f(t, g)
		ctx, cancel := context.WithTimeout(context.Background(), longTimeout)
		defer cancel()
		worked(t, g.Close(ctx))
	}
	t.Run("memory", func(t *testing.T) { runAndClose(t, memoryGate(t, cfg)) })
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client := s.Client(t)
		cfg.Prefix = s.Prefix
		runAndClose(t, redisGate(t, client, cfg))
		if left := redistest.Keys(t, client, s.Prefix+"*"); len(left) > 0 {
			t.Errorf("keys remain: %v", left)
		}
	})
}

// wantFull checks that a slot is asked for in vain.
func wantFull(t *testing.T, s *semaphore.Semaphore, what string, levels ...semaphore.Cap) *semaphore.FullError {
	t.Helper()
	var full *semaphore.FullError
	_, err := s.Acquire(t.Context(), semaphore.Request{Caps: levels})
	if !errors.As(err, &full) || !errors.Is(err, semaphore.ErrFull) {
		t.Fatalf("%s: %v", what, err)
	}
	return full
}

// onlyHolder returns the only holder of a key.
func onlyHolder(t *testing.T, s *semaphore.Semaphore, key core.Key) semaphore.Holder {
	t.Helper()
	holders, _, err := s.Holders(t.Context(), key)
	if err != nil || len(holders) != 1 {
		t.Fatalf("%d holders: %+v, %v", len(holders), holders, err)
	}
	return holders[0]
}

// evict evicts the only holder of a key.
func evict(t *testing.T, s *semaphore.Semaphore, key core.Key) {
	t.Helper()
	if n, err := s.Evict(t.Context(), key, onlyHolder(t, s, key).ID); n != 1 || err != nil {
		t.Fatalf("%d were evicted: %v", n, err)
	}
}

// forget makes the store forget the only holder of a key, and notifies nobody.
func forget(t *testing.T, s *semaphore.Semaphore, key core.Key) {
	t.Helper()
	gatetest.NoError(t, s.Leave(t.Context(), key, onlyHolder(t, s, key).ID))
}

func TestSemaphoreHoldsItsLimit(t *testing.T) {
	t.Parallel()
	eachLeaseGate(t, func(t *testing.T, g *core.Gate) {
		s := newSemaphore(t, g, semaphore.Config{})
		level := semaphore.Cap{Key: newKey(t, "acme", "user"), Limit: 3}
		a, b, c := acquire(t, s, level), acquire(t, s, level), acquire(t, s, level)
		if a.InUse() != 1 || c.InUse() != 3 || a.Token() >= b.Token() || b.Token() >= c.Token() {
			t.Errorf("%d and %d in use, tokens %d %d %d", a.InUse(), c.InUse(), a.Token(), b.Token(), c.Token())
		}
		full := wantFull(t, s, "the fourth", level)
		if full.InUse != 3 || full.Limit != 3 || full.Queue || full.RetryAfter < time.Second ||
			full.NextExpiry <= 0 || full.NextExpiry > 10*time.Second {
			t.Errorf("%+v", full)
		}
		release(t, b, b, nil)
		if b.Context().Err() == nil || a.Context().Err() != nil {
			t.Errorf("released: %v, held: %v", b.Context().Err(), a.Context().Err())
		}
		d := acquire(t, s, level)
		if d.Token() <= c.Token() {
			t.Errorf("token %d after %d", d.Token(), c.Token())
		}
		release(t, a, c, d)
	})
}

// A refusal after a pause estimates the wait by earlier holds, although Redis has forgotten them.
func TestRetryAfterOutlivesAPause(t *testing.T) {
	t.Parallel()
	eachLeaseGate(t, func(t *testing.T, g *core.Gate) {
		s := newSemaphore(t, g, semaphore.Config{TTL: time.Hour})
		level := semaphore.Cap{Key: newKey(t, "acme"), Limit: 1}
		refused := func() time.Duration {
			l := acquire(t, s, level)
			defer release(t, l)
			return wantFull(t, s, "refused", level).RetryAfter
		}
		if wait := refused(); wait < 3*time.Second || wait > 3600*time.Millisecond {
			t.Errorf("without a hold: %v", wait)
		}
		if wait := refused(); wait >= 3*time.Second {
			t.Errorf("after a short hold: %v", wait)
		}
	})
}

func TestSemaphoreLevels(t *testing.T) {
	t.Parallel()
	eachLeaseGate(t, func(t *testing.T, g *core.Gate) {
		s := newSemaphore(t, g, semaphore.Config{})
		tenant := semaphore.Cap{Key: newKey(t, "acme"), Limit: 4}
		user := func(name string) semaphore.Cap { return semaphore.Cap{Key: newKey(t, "acme", name), Limit: 2} }
		a1, a2 := acquire(t, s, tenant, user("a")), acquire(t, s, tenant, user("a"))
		if full := wantFull(t, s, "user a", tenant, user("a")); full.Cap != 1 || full.InUse != 2 {
			t.Errorf("user a: %+v", full)
		}
		// A caller that waits at a user's cap delays no other user.
		granted := enqueue(t, s, tenant, user("a"))
		b1, b2 := acquire(t, s, tenant, user("b")), acquire(t, s, tenant, user("b"))
		if full := wantFull(t, s, "the tenant", tenant, user("c")); full.Cap != 0 || full.InUse != 4 {
			t.Errorf("the tenant: %+v", full)
		}
		release(t, b1) // room for the tenant, not for user a
		c1 := acquire(t, s, tenant, user("c"))
		release(t, a1) // room for both
		a3 := <-granted
		release(t, a2, a3, b2, c1)
	})
}

// The queue serves callers in the order of their arrival, each once, and nobody overtakes them.
func TestSemaphoreQueueIsFIFO(t *testing.T) {
	t.Parallel()
	eachLeaseGate(t, func(t *testing.T, g *core.Gate) {
		s := newSemaphore(t, g, semaphore.Config{MaxWaiters: 5})
		level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
		first := acquire(t, s, level)
		var order []int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 5 {
			queued := make(chan int, 10)
			wg.Go(func() {
				l, err := s.Acquire(context.Background(), semaphore.Request{Caps: []semaphore.Cap{level}, MaxWait: semaphore.Forever, OnQueue: func(p int) {
					select {
					case queued <- p:
					default:
					}
				}})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				release(t, l)
			})
			if p := <-queued; p != i {
				t.Errorf("caller %d is at position %d", i, p)
			}
		}
		var full *semaphore.FullError
		if _, err := s.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{level}, MaxWait: semaphore.Forever}); !errors.As(err, &full) || !full.Queue {
			t.Errorf("sixth waiter: %v", err)
		}
		if full := wantFull(t, s, "past the queue", level); full.Queue {
			t.Errorf("past the queue: %+v", full)
		}
		holders, waiting, err := s.Holders(t.Context(), level.Key)
		if err != nil || len(holders) != 1 || waiting != 5 || holders[0].Token != first.Token() || holders[0].Key != level.Key {
			t.Errorf("%+v, %d wait, %v", holders, waiting, err)
		}
		release(t, first)
		wg.Wait()
		gatetest.Equal(t, fmt.Sprint(order), "[0 1 2 3 4]", "served %v", order)
	})
}

func TestDetachedLeaseOutlivesItsContext(t *testing.T) {
	g := memoryGate(t, core.Config{})
	s := newSemaphore(t, g, semaphore.Config{})
	level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
	ctx, cancel := context.WithCancel(t.Context())
	l := gatetest.Must(s.Acquire(ctx, semaphore.Request{Caps: []semaphore.Cap{level}}))(t)
	own := l.Detach()
	cancel()
	release(t, l)
	if l.Context().Err() == nil || own.Context().Err() != nil || l.Detach() != nil {
		t.Errorf("%v, %v", l.Context().Err(), own.Context().Err())
	}
	wantFull(t, s, "the detached lease", level)
	release(t, own)
	release(t, acquire(t, s, level))
}

// A lease is renewed while it is held, and MaxHold ends it.
func TestRenewalKeepsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memoryGate(t, core.Config{})
		s := newSemaphore(t, g, semaphore.Config{TTL: 10 * time.Second})
		brief := newSemaphore(t, g, semaphore.Config{Name: "brief", TTL: 10 * time.Second, MaxHold: time.Minute})
		level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
		l, m := acquire(t, s, level), acquire(t, brief, level)
		time.Sleep(55*time.Second - time.Second)
		synctest.Wait()
		if l.Context().Err() != nil || m.Context().Err() != nil {
			t.Fatalf("%v, %v", context.Cause(l.Context()), context.Cause(m.Context()))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if l.Context().Err() != nil || !errors.Is(context.Cause(m.Context()), semaphore.ErrLeaseLost) {
			t.Fatalf("%v, %v", context.Cause(l.Context()), context.Cause(m.Context()))
		}
		wantFull(t, s, "a second holder", level)
		release(t, acquire(t, brief, level), l)
		worked(t, g.Close(t.Context()))
	})
}

// Close rejects waiting callers and lets holders finish.
func TestCloseDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memoryGate(t, core.Config{})
		s := newSemaphore(t, g, semaphore.Config{TTL: 10 * time.Second})
		level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
		l := acquire(t, s, level)
		waited := make(chan error)
		go func() {
			_, err := s.Acquire(context.Background(), semaphore.Request{Caps: []semaphore.Cap{level}, MaxWait: semaphore.Forever})
			waited <- err
		}()
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- g.Close(context.Background()) }()
		gatetest.Is(t, <-waited, core.ErrClosed, "waiting caller")
		if _, err := s.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{level}}); !errors.Is(err, core.ErrClosed) {
			t.Errorf("new caller: %v", err)
		}
		time.Sleep(time.Minute)
		if l.Context().Err() != nil {
			t.Errorf("holder: %v", context.Cause(l.Context()))
		}
		release(t, l)
		worked(t, <-closed)

		g = memoryGate(t, core.Config{})
		s = newSemaphore(t, g, semaphore.Config{})
		l = acquire(t, s, level)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(context.Cause(l.Context()), core.ErrClosed) {
			t.Errorf("%v, %v", err, context.Cause(l.Context()))
		}
	})
}

// Many callers contend for few slots. No cap is ever exceeded, and every caller gets its turns.
func TestSemaphoreCapsHoldUnderContention(t *testing.T) {
	t.Parallel()
	eachLeaseGate(t, func(t *testing.T, g *core.Gate) {
		s := newSemaphore(t, g, semaphore.Config{})
		tenant := semaphore.Cap{Key: newKey(t, "acme"), Limit: 5}
		var holding atomic.Int64
		var users [3]atomic.Int64
		var wg sync.WaitGroup
		for i := range 24 {
			wg.Go(func() {
				u := i % len(users)
				for range 4 {
					l, err := s.Acquire(context.Background(), semaphore.Request{
						Caps:    []semaphore.Cap{tenant, {Key: newKey(t, "acme", fmt.Sprint(u)), Limit: 2}},
						MaxWait: semaphore.Forever,
					})
					if err != nil {
						t.Error(err)
						return
					}
					if n, m := holding.Add(1), users[u].Add(1); n > 5 || m > 2 {
						t.Errorf("%d holders, %d of user %d", n, m, u)
					}
					holding.Add(-1)
					users[u].Add(-1)
					release(t, l)
				}
			})
		}
		wg.Wait()
	})
}
