package semaphore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// wantLost checks that a lease was lost to a newer one of its ID, whose token is higher.
func wantLost(t *testing.T, before, after *semaphore.Lease) {
	t.Helper()
	select {
	case <-before.Lost():
	case <-time.After(longTimeout):
		t.Error("the lease before is not lost")
	}
	if cause := context.Cause(before.Context()); !errors.Is(cause, semaphore.ErrLeaseLost) || after.Token() <= before.Token() {
		t.Errorf("cause %v, token %d after %d", cause, after.Token(), before.Token())
	}
}

// A request with the ID of a holder takes its slot over, although others wait. The same ID at another key
// is another holder, and so is another ID. Of other weights it waits its turn like anybody.
func TestNamedHolderIsReplaced(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for name, policy := range map[string]semaphore.LossPolicy{"cancel": semaphore.LossCancel, "adopt": semaphore.LossAdopt} {
			t.Run(name, func(t *testing.T) {
				s := newSemaphore(t, g, semaphore.Config{Name: name, TTL: 3 * time.Second, OnLoss: policy})
				tenant, a, b := newKey(t, "t"), newKey(t, "t", "a"), newKey(t, "t", "b")
				const worker = "worker 1/ü~"
				ask := func(id string, key core.Key, weight int64, maxWait time.Duration) (*semaphore.Lease, error) {
					return s.Acquire(t.Context(), semaphore.Request{ID: id, MaxWait: maxWait, Caps: []semaphore.Cap{
						{Key: tenant, Limit: 5, Weight: weight}, {Key: key, Limit: 2, Weight: weight},
					}})
				}
				take := func(key core.Key, weight int64) *semaphore.Lease {
					t.Helper()
					return gatetest.Must(ask(worker, key, weight, 0))(t)
				}
				first, elsewhere := take(a, 2), take(b, 2)
				gatetest.Equal(t, first.ID(), worker, "ID")
				other := make(chan *semaphore.Lease, 1)
				go func() {
					l, err := ask("worker 2", a, 2, time.Hour)
					worked(t, err)
					other <- l
				}()
				eventually(t, "worker 2 waits", func() bool {
					_, waiting, err := s.Holders(t.Context(), tenant)
					return err == nil && waiting == 1
				})
				for range 3 {
					c.Advance(time.Millisecond)
					again := take(a, 2)
					wantLost(t, first, again)
					if err := first.Release(t.Context()); err != nil { // which gives nothing back
						t.Error(err)
					}
					first = again
				}
				holders, waiting, err := s.Holders(t.Context(), tenant)
				if err != nil || len(holders) != 2 || waiting != 1 || holders[0].Name != worker {
					t.Errorf("%v, %d wait, %v", holders, waiting, err)
				}
				if _, err := ask(worker, a, 1, 0); !errors.Is(err, semaphore.ErrFull) { // worker 2 was first
					t.Errorf("of another weight: %v", err)
				}
				release(t, <-other, elsewhere)
				<-first.Lost()
				release(t, take(a, 1), take(b, 1))
				if used, err := s.Usage(t.Context(), tenant, a, b); err != nil || used[0]+used[1]+used[2] != 0 {
					t.Errorf("%v in use, %v", used, err)
				}
			})
		}
		s := newSemaphore(t, g, semaphore.Config{Name: "long"})
		_, err := s.Acquire(t.Context(), semaphore.Request{ID: strings.Repeat("x", 129), Caps: []semaphore.Cap{{Key: newKey(t, "k"), Limit: 1}}})
		gatetest.Is(t, err, semaphore.ErrRequest, "a long ID")
	})
}

// A waiter whose ID asks again, in another process, is told so.
func TestNamedWaiterIsReplaced(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		s := newSemaphore(t, g, semaphore.Config{TTL: time.Hour})
		one := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
		holder := acquire(t, s, one)
		results := make(chan error, 2)
		for range 2 {
			go func() {
				l, err := s.Acquire(t.Context(), semaphore.Request{ID: "a", MaxWait: time.Hour, Caps: []semaphore.Cap{one}})
				results <- errors.Join(err, l.Release(t.Context()))
			}()
		}
		gatetest.Is(t, <-results, semaphore.ErrLeaseLost, "the first to wait")
		release(t, holder)
		if err := <-results; err != nil {
			t.Errorf("the second: %v", err)
		}
	})
}

// A mutex is unlocked by the ID of its lock, and by no other.
func TestMutexUnlocksByID(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		m := core.Must(semaphore.NewMutex(g, semaphore.MutexConfig{Name: "jobs"}))
		key, other := newKey(t, "jobs", "1"), newKey(t, "jobs", "2")
		l, err := m.LockAs(t.Context(), key, "job 7")
		noError(t, err)
		for id, at := range map[string]core.Key{"job 7": other, "job 8": key, "": key} {
			if unlocked, err := m.Unlock(t.Context(), at, id); err != nil || unlocked {
				t.Errorf("%q at %v: %v, %v", id, at, unlocked, err)
			}
		}
		if unlocked, err := m.Unlock(t.Context(), key, "job 7"); err != nil || !unlocked {
			t.Errorf("%v, %v", unlocked, err)
		}
		next := gatetest.Must(m.TryLock(t.Context(), key))(t)
		wantLost(t, l, next)
		if again, err := m.TryLockAs(t.Context(), key, "job 7"); !errors.Is(err, semaphore.ErrFull) {
			t.Errorf("%v, %v", again, err)
		}
		if next.ID() == "" || (*semaphore.Lease)(nil).ID() != "" {
			t.Errorf("ID %q", next.ID())
		}
	})
}

const namedHolders = 100

func named(t *testing.T, addr, prefix string) (*core.Gate, func(i int) (*semaphore.Lease, error)) {
	client := redis.NewClient(&redis.Options{
		Addr: addr, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = client.Close() })
	g := redisGate(t, client, core.Config{Prefix: prefix, Timeout: busyTimeout})
	s := newSemaphore(t, g, semaphore.Config{Name: "named", TTL: time.Hour})
	return g, func(i int) (*semaphore.Lease, error) {
		caps := []semaphore.Cap{{Key: newKey(t, "pool"), Limit: namedHolders / 2}} // half of them share a cap
		if i%2 == 1 {
			caps[0] = semaphore.Cap{Key: newKey(t, fmt.Sprint("own ", i)), Limit: 1}
		}
		return s.Acquire(t.Context(), semaphore.Request{ID: fmt.Sprint("worker ", i), Caps: caps})
	}
}

// Each named holder of a process that was killed has its slot again at once, in one round trip, although
// its lease lasts for an hour, and though a process that lives holds it.
func TestNamedHoldersAreBackAfterKill(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	_, lines, kill := redistest.StartKillable(t, "TestNamedWorker", "NAMED_TEST="+s.Addr+" "+s.Prefix)
	tokens := make(map[int]int64)
	read := func(lines *bufio.Scanner) {
		for lines.Scan() && len(tokens) < namedHolders {
			var i int
			var token int64
			if _, err := fmt.Sscanf(lines.Text(), "token %d %d", &i, &token); err == nil {
				tokens[i] = token
			}
			if len(tokens) == namedHolders {
				return
			}
		}
	}
	read(lines)
	kill()
	gate, take := named(t, s.Addr, s.Prefix)
	noError(t, gate.Ping(t.Context()))
	if l, err := take(namedHolders); err != nil || l.Release(t.Context()) != nil { // loads the scripts
		t.Log(err)
	}
	zombies, back := make([]*semaphore.Lease, namedHolders), 0
	for round := range 2 {
		for i := range namedHolders {
			before := s.Calls(t, "evalsha", "eval")
			l, err := take(i)
			if trips := s.Calls(t, "evalsha", "eval") - before; err != nil || trips != 1 || l.Token() <= tokens[i] {
				t.Errorf("worker %d: %v, %d round trips, token %d after %d", i, err, trips, l.Token(), tokens[i])
				continue
			}
			back++
			if round == 1 {
				wantLost(t, zombies[i], l)
			}
			zombies[i], tokens[i] = l, l.Token()
		}
	}
	t.Logf("%d of %d back in one round trip", back, 2*namedHolders)
}

// TestNamedWorker is the body of the process that is killed.
func TestNamedWorker(t *testing.T) {
	addr, prefix, ok := strings.Cut(os.Getenv("NAMED_TEST"), " ")
	if !ok {
		t.Skip("runs only as a process of TestNamedHoldersAreBackAfterKill")
	}
	_, take := named(t, addr, prefix)
	for i := range namedHolders {
		l := gatetest.Must(take(i))(t)
		fmt.Println("token", i, l.Token())
	}
	select {}
}
