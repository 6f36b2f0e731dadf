package semaphore_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// lateContext is a context whose deadline may pass before it ends, as if its timer were late.
type lateContext struct {
	context.Context
	deadline *atomic.Pointer[time.Time]
}

func (c lateContext) Deadline() (time.Time, bool) { return *c.deadline.Load(), true }

// A slot whose grant is lost on the way is released, whatever lost it.
func TestLostGrantIsReleased(t *testing.T) {
	for name, lose := range map[string]func(expire func()) error{
		"deadline without its timer": func(expire func()) error {
			expire()
			return os.ErrDeadlineExceeded
		},
		"invalid reply":     func(func()) error { return redis.Nil },
		"broken connection": func(func()) error { return io.EOF },
		"panic":             func(func()) error { panic("hook") },
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			client, at := s.Client(t), new(atomic.Pointer[time.Time])
			inAnHour := time.Now().Add(time.Hour)
			at.Store(&inAnHour)
			var once sync.Once
			client.AddHook(onScripts(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				err := send()
				if cmds[0].Name() == "eval" && err == nil { // the first, once the server has run it
					once.Do(func() { err = fail(cmds, lose(func() { at.Store(new(time.Time)) })) })
				}
				return err
			}))
			g := redisGate(t, client, core.Config{})
			sem := newSemaphore(t, g, semaphore.Config{TTL: time.Hour, OnFailure: core.FailClosed})
			level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
			p := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: frozen(1), OnFailure: core.FailClosed})
			func() {
				defer func() { _ = recover() }()
				l, _, err := sem.Admit(lateContext{t.Context(), at}, semaphore.Request{Caps: []semaphore.Cap{level}}, core.Charge{Policy: p, Key: level.Key, Cost: 1})
				if l != nil {
					t.Errorf("granted: %v", err)
				}
			}()
			worked(t, g.Close(t.Context()))
			release(t, acquire(t, newSemaphore(t, redisGate(t, s.Client(t), core.Config{}), semaphore.Config{}), level))
		})
	}
}

// A call that its caller has left writes only to memory that nobody reads. The race detector
// watches.
func TestAbandonedLeaseCallIsRaceFree(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = false })
	g := redisGate(t, client, core.Config{Timeout: shortTimeout})
	sem := newSemaphore(t, g, semaphore.Config{OnFailure: core.FailOpen})
	do(t, client, "PING")
	s.Stop()
	l := acquire(t, sem, semaphore.Cap{Key: newKey(t, "k"), Limit: 1})
	s.Continue()
	release(t, l)
	worked(t, g.Close(t.Context()))
}

// A lease that is granted after Close gave up is lost, and its slot is free.
func TestGrantAfterCloseIsLost(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	warm := redisGate(t, client, core.Config{})
	level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
	release(t, acquire(t, newSemaphore(t, warm, semaphore.Config{}), level)) // loads the script
	slow := s.Client(t)
	ran, open := make(chan struct{}, 1), make(chan struct{})
	slow.AddHook(onScripts(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		err := send()
		if cmds[0].Name() == "evalsha" && err == nil {
			select {
			case ran <- struct{}{}:
			default:
			}
			<-open
		}
		return err
	}))
	g := redisGate(t, slow, core.Config{})
	sem := newSemaphore(t, g, semaphore.Config{})
	granted := make(chan *semaphore.Lease)
	go func() {
		l, err := sem.Acquire(context.Background(), semaphore.Request{Caps: []semaphore.Cap{level}})
		worked(t, err)
		granted <- l
	}()
	<-ran
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	gatetest.Is(t, g.Close(ctx), context.Canceled, "closed")
	close(open)
	l := <-granted
	gatetest.Is(t, context.Cause(l.Context()), core.ErrClosed, "cause")
	next, err := newSemaphore(t, warm, semaphore.Config{}).Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{level}, MaxWait: longTimeout})
	noError(t, err)
	release(t, next, l)
}

// MaxHold ends a lease even in the Open mode, where no store counts, and adoption does not extend
// it.
func TestMaxHoldEndsLease(t *testing.T) {
	t.Run("open", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{
				// Not a name: a resolver that starts in this bubble could not serve later tests.
				Addr:          "127.0.0.1:1",
				DialerRetries: 1, MaxRetries: -1, ContextTimeoutEnabled: true,
				Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("down") },
			})
			defer func() {
				client.Close()
				time.Sleep(2 * time.Second) // until a pool that could not dial has noticed
			}()
			g := redisGate(t, client, core.Config{})
			s := newSemaphore(t, g, semaphore.Config{TTL: time.Second, MaxHold: time.Minute, OnFailure: core.FailOpen, OnLoss: semaphore.LossAdopt})
			start := time.Now()
			l := acquire(t, s, semaphore.Cap{Key: newKey(t, "k"), Limit: 1})
			<-l.Lost()
			if took := time.Since(start); took != time.Minute || !errors.Is(context.Cause(l.Context()), semaphore.ErrLeaseLost) || !errors.Is(l.Extend(t.Context()), semaphore.ErrLeaseLost) {
				t.Errorf("after %v: %v", took, context.Cause(l.Context()))
			}
			release(t, l)
			worked(t, g.Close(t.Context()))
		})
	})
	t.Run("adopted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			adopted := 0
			g := memoryGate(t, core.Config{Observe: func(_ context.Context, e core.Event) {
				if e, ok := e.(*semaphore.LeaseEvent); ok && e.Kind == semaphore.LeaseAdopted {
					adopted++
				}
			}})
			const longest = time.Minute
			s := newSemaphore(t, g, semaphore.Config{TTL: 10 * time.Second, MaxHold: longest, OnLoss: semaphore.LossAdopt})
			start, key := time.Now(), newKey(t, "k")
			l := acquire(t, s, semaphore.Cap{Key: key, Limit: 1})
			for range 4 {
				time.Sleep(longest / 5)
				forget(t, s, key)
				noError(t, l.Extend(t.Context()))
			}
			<-l.Lost()
			if took := time.Since(start); adopted != 4 || took > longest || took < longest*4/5 {
				t.Errorf("lost after %v, adopted %d times", took, adopted)
			}
			release(t, l)
			worked(t, g.Close(t.Context()))
		})
	})
}

// An adopted lease is renewed from then on, even beside one that is due much later.
func TestAdoptedLeaseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memoryGate(t, core.Config{})
		long := newSemaphore(t, g, semaphore.Config{Name: "long", TTL: time.Hour})
		s := newSemaphore(t, g, semaphore.Config{TTL: 10 * time.Second, OnLoss: semaphore.LossAdopt})
		level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
		other, l := acquire(t, long, level), acquire(t, s, level)
		forget(t, s, level.Key)
		noError(t, l.Extend(t.Context()))
		for range 3 {
			time.Sleep(time.Minute)
			onlyHolder(t, s, level.Key)
		}
		release(t, l)
		release(t, other)
		worked(t, g.Close(t.Context()))
	})
}

// With AdoptOnLoss a lease that was not renewed in time, as in a stopped process, is acquired again.
// Where another holder has its slot, the release of the lost lease does not free that.
func TestOverdueLeaseIsAdopted(t *testing.T) {
	t.Parallel()
	eachLeaseGate(t, func(t *testing.T, g *core.Gate) {
		for name, taken := range map[string]bool{"free": false, "taken": true} {
			s := newSemaphore(t, g, semaphore.Config{OnLoss: semaphore.LossAdopt})
			level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
			l := acquire(t, s, level)
			token := l.Token()
			forget(t, s, level.Key)
			var other *semaphore.Lease
			if taken {
				other = acquire(t, s, level)
			}
			_ = l.Extend(t.Context()) // it tells of the loss
			gatetest.Equal(t, l.Context().Err() != nil, taken, "%s: lost (token %d after %d)", name, l.Token(), token)
			release(t, l)
			if taken { // the other's slot is not freed
				wantFull(t, s, name, level)
			}
			release(t, other)
		}
	})
}
