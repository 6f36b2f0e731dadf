package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// holderAddrEnv is the environment variable with the address of the Redis at which
// TestHolderProcess holds a slot until it is killed.
const holderAddrEnv = "HEADGATE_TEST_HOLD"

func TestHolderProcess(t *testing.T) {
	addr := os.Getenv(holderAddrEnv)
	if addr == "" {
		t.Skip("runs only in a process of TestSlotOfKilledHolderIsFreed")
	}
	g := redisGate(t, redis.NewClient(&redis.Options{Addr: addr}), core.Config{})
	acquire(t, newSemaphore(t, g, semaphore.Config{TTL: time.Second}), semaphore.Cap{Key: newKey(t, "k"), Limit: 1})
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// A waiter gets the slot of a killed holder once the holder's lease has expired.
func TestSlotOfKilledHolderIsFreed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := redisGate(t, s.Client(t), core.Config{})
	sem := newSemaphore(t, g, semaphore.Config{TTL: time.Second})
	_, lines, kill := redistest.StartKillable(t, "TestHolderProcess", holderAddrEnv+"="+s.Addr)
	for lines.Scan() && lines.Text() != "held" {
	}
	level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
	wantFull(t, sem, "the process holds the slot", level)
	kill()
	l := gatetest.Must(sem.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{level}, MaxWait: longTimeout}))(t)
	release(t, l)
}

// A fault while a caller waits costs a wake-up or a lease, and blocks nobody.
func TestFaultsWhileWaiting(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(t *testing.T, s *redistest.Server, admin *redis.Client){
		"none": func(*testing.T, *redistest.Server, *redis.Client) {},
		"subscriber is killed": func(t *testing.T, _ *redistest.Server, admin *redis.Client) {
			do(t, admin, "CLIENT", "KILL", "TYPE", "pubsub")
		},
		"scripts are flushed":   func(t *testing.T, _ *redistest.Server, admin *redis.Client) { do(t, admin, "SCRIPT", "FLUSH") },
		"everything is flushed": func(t *testing.T, _ *redistest.Server, admin *redis.Client) { do(t, admin, "FLUSHALL") },
		"all connections die": func(t *testing.T, _ *redistest.Server, admin *redis.Client) {
			do(t, admin, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			do(t, admin, "CLIENT", "KILL", "TYPE", "pubsub")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			admin := s.Client(t)
			g := redisGate(t, s.Client(t), core.Config{})
			sem := newSemaphore(t, g, semaphore.Config{TTL: 2 * time.Second})
			level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
			first := acquire(t, sem, level)
			granted := enqueue(t, sem, level)
			fault(t, s, admin)
			_ = first.Release(t.Context()) // fails if the connection died; then the lease expires
			release(t, <-granted)
			worked(t, g.Close(t.Context()))
		})
	}
}

func TestMutexExcludesOthers(t *testing.T) {
	t.Parallel()
	eachLeaseGate(t, func(t *testing.T, g *core.Gate) {
		for name, poll := range map[string]semaphore.Backoff{
			"queue": nil, "constant": semaphore.ConstantBackoff(time.Millisecond, 0),
			"exponential": semaphore.ExponentialBackoff(time.Microsecond, time.Millisecond, 0),
			"decaying":    semaphore.DecayingBackoff(time.Millisecond, time.Microsecond, 0),
		} {
			m := gatetest.Must(semaphore.NewMutex(g, semaphore.MutexConfig{Name: name, Poll: poll}))(t)
			key, n, last := newKey(t, "k"), 0, int64(0)
			done := make(chan struct{})
			for range 4 {
				go func() {
					defer func() { done <- struct{}{} }()
					for range 5 {
						l, err := m.Lock(context.Background(), key)
						if err != nil {
							t.Error(err)
							return
						}
						if _, err := m.TryLock(context.Background(), key); !errors.Is(err, semaphore.ErrFull) {
							t.Errorf("%s: TryLock while locked: %v", name, err)
						}
						if n++; l.Token() <= last { // the race detector watches n and last
							t.Errorf("%s: token %d after %d", name, l.Token(), last)
						}
						last = l.Token()
						release(t, l)
					}
				}()
			}
			for range 4 {
				<-done
			}
			gatetest.Equal(t, n, 20, "%s: turns", name)
		}
	})
}

func TestBackoffs(t *testing.T) {
	for _, tt := range []struct {
		backoff semaphore.Backoff
		tries   int
		from    time.Duration
		to      time.Duration
		more    bool
	}{
		{semaphore.ConstantBackoff(time.Second, 0), 1_000_000, time.Second, time.Second, true},
		{semaphore.ConstantBackoff(time.Second, 3), 2, time.Second, time.Second, true},
		{semaphore.ConstantBackoff(time.Second, 3), 3, time.Second, time.Second, false},
		{semaphore.ExponentialBackoff(time.Second, 5*time.Second, 0), 1, time.Second / 2, time.Second, true},
		{semaphore.ExponentialBackoff(time.Second, 5*time.Second, 0), 3, 2 * time.Second, 4 * time.Second, true},
		{semaphore.ExponentialBackoff(time.Second, 5*time.Second, 9), 1000, 5 * time.Second / 2, 5 * time.Second, false},
		{semaphore.DecayingBackoff(time.Second, time.Second/2, 0), 1, time.Second, time.Second, true},
		{semaphore.DecayingBackoff(time.Second, time.Second/2, 0), 2, 875 * time.Millisecond, 875 * time.Millisecond, true},
		{semaphore.DecayingBackoff(time.Second, time.Second/2, 1), 1000, time.Second / 2, time.Second / 2, false},
	} {
		if wait, more := tt.backoff(tt.tries); wait < tt.from || wait > tt.to || more != tt.more {
			t.Errorf("after %d tries: %v %v", tt.tries, wait, more)
		}
	}
}

// Extend confirms a held lease, and reports one that is gone.
func TestExtend(t *testing.T) {
	t.Parallel()
	eachLeaseGate(t, func(t *testing.T, g *core.Gate) {
		for _, loss := range []semaphore.LossPolicy{semaphore.LossCancel, semaphore.LossAdopt} {
			s := newSemaphore(t, g, semaphore.Config{OnLoss: loss})
			level := semaphore.Cap{Key: newKey(t, "acme"), Limit: 1}
			l := acquire(t, s, level)
			token := l.Token()
			if err := l.Extend(t.Context()); err != nil {
				t.Errorf("held: %v", err)
			}
			forget(t, s, level.Key)
			switch err := l.Extend(t.Context()); {
			case loss == semaphore.LossAdopt:
				if err != nil || l.Token() <= token {
					t.Errorf("adopted: %v, token %d after %d", err, l.Token(), token)
				}
			case !errors.Is(err, semaphore.ErrLeaseLost) || !errors.Is(l.Extend(t.Context()), semaphore.ErrLeaseLost):
				t.Errorf("policy %d: lost: %v", loss, err)
			default:
				<-l.Lost()
			}
			release(t, l)
			gatetest.Is(t, l.Extend(t.Context()), semaphore.ErrLeaseLost, "released")
		}
		if err := (*semaphore.Lease)(nil).Extend(t.Context()); err != nil {
			t.Errorf("nil: %v", err)
		}
	})
}
