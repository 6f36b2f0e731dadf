package core_test

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
	"github.com/headgate/headgate/internal/redistest"
)

// lose does to a client's first script, once it has run, what makes its reply get lost.
type lose struct {
	once *sync.Once
	how  func() error
}

func (lose) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h lose) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "eval" && err == nil {
			h.once.Do(func() {
				err = h.how()
				cmd.SetErr(err)
			})
		}
		return err
	}
}

func (lose) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// late is a context whose deadline may be over before it ends, as where its timer is late.
type late struct {
	context.Context
	at *atomic.Pointer[time.Time]
}

func (c late) Deadline() (time.Time, bool) { return *c.at.Load(), true }

// A slot whose grant is lost on the way is given up, whatever went wrong.
func TestLostGrant(t *testing.T) {
	for name, how := range map[string]func(over func()) error{
		"deadline without its timer": func(over func()) error { over(); return os.ErrDeadlineExceeded },
		"broken reply":               func(func()) error { return redis.Nil },
		"broken connection":          func(func()) error { return io.EOF },
		"panic":                      func(func()) error { panic("mine") },
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			client, at := s.Client(t), new(atomic.Pointer[time.Time])
			hours := time.Now().Add(time.Hour)
			at.Store(&hours)
			client.AddHook(lose{new(sync.Once), func() error { return how(func() { at.Store(new(time.Time)) }) }})
			g := redisGate(t, client, core.Config{})
			sem := semaphore(t, g, core.SemaphoreConfig{TTL: time.Hour, OnFailure: core.Closed})
			level := core.Level{Key: newKey(t, "k"), Limit: 1}
			p := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: frozen(1), OnFailure: core.Closed})
			func() {
				defer func() { _ = recover() }()
				l, _, err := sem.TryAdmit(late{t.Context(), at}, core.SlotRequest{Levels: []core.Level{level}}, core.Charge{Policy: p, Key: level.Key, Cost: 1})
				if l != nil {
					t.Errorf("granted: %v", err)
				}
			}()
			if err := g.Close(t.Context()); err != nil {
				t.Error(err)
			}
			free(t, take(t, semaphore(t, redisGate(t, s.Client(t), core.Config{}), core.SemaphoreConfig{}), level))
		})
	}
}

// A call that its caller has left writes where nobody reads; the race detector watches.
func TestLeaseCallLeftBehind(t *testing.T) {
	s := redistest.Start(t)
	client := s.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = false })
	g := redisGate(t, client, core.Config{Timeout: brief})
	sem := semaphore(t, g, core.SemaphoreConfig{OnFailure: core.Open})
	do(t, client, "PING")
	s.Stop()
	l := take(t, sem, core.Level{Key: newKey(t, "k"), Limit: 1})
	s.Continue()
	free(t, l)
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// withhold keeps the replies to a client's scripts back.
type withhold struct {
	asked chan struct{}
	until chan struct{}
}

func (withhold) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w withhold) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "evalsha" && err == nil {
			select {
			case w.asked <- struct{}{}:
			default:
			}
			<-w.until
		}
		return err
	}
}

func (withhold) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A lease that is granted after Close gave up is lost, and its slot is free.
func TestGrantAfterClose(t *testing.T) {
	s := redistest.Start(t)
	client := s.Client(t)
	warm := redisGate(t, client, core.Config{})
	level := core.Level{Key: newKey(t, "k"), Limit: 1}
	free(t, take(t, semaphore(t, warm, core.SemaphoreConfig{}), level)) // the script is known then
	slow := s.Client(t)
	hook := withhold{make(chan struct{}, 1), make(chan struct{})}
	slow.AddHook(hook)
	g := redisGate(t, slow, core.Config{})
	sem := semaphore(t, g, core.SemaphoreConfig{})
	granted := make(chan *core.Lease)
	go func() {
		l, err := sem.TryAcquire(context.Background(), core.SlotRequest{Levels: []core.Level{level}})
		if err != nil {
			t.Error(err)
		}
		granted <- l
	}()
	<-hook.asked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("closed: %v", err)
	}
	close(hook.until)
	l := <-granted
	if cause := context.Cause(l.Context()); !errors.Is(cause, core.ErrClosed) {
		t.Errorf("cause %v", cause)
	}
	next, err := semaphore(t, warm, core.SemaphoreConfig{}).Acquire(t.Context(), core.SlotRequest{Levels: []core.Level{level}, MaxWait: patient})
	if err != nil {
		t.Fatal(err)
	}
	free(t, next, l)
}

// The longest hold ends a lease also where nobody counts, and is none the longer by adoption.
func TestLongestHold(t *testing.T) {
	t.Run("open", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{
				Addr:          "127.0.0.1:1", // no name: what looks it up here would be of no use to the tests after this one
				DialerRetries: 1, MaxRetries: -1, ContextTimeoutEnabled: true,
				Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("down") },
			})
			defer client.Close()
			g := redisGate(t, client, core.Config{})
			s := semaphore(t, g, core.SemaphoreConfig{TTL: time.Second, MaxHold: time.Minute, OnFailure: core.Open, OnLoss: core.AdoptOnLoss})
			start := time.Now()
			l := take(t, s, core.Level{Key: newKey(t, "k"), Limit: 1})
			<-l.Lost()
			if took := time.Since(start); took != time.Minute || !errors.Is(context.Cause(l.Context()), core.ErrLeaseLost) || !errors.Is(l.Extend(t.Context()), core.ErrLeaseLost) {
				t.Errorf("after %v: %v", took, context.Cause(l.Context()))
			}
			free(t, l)
			if err := g.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("adopted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			adopted := 0
			g := memoryGate(t, core.Config{Observe: func(_ context.Context, e core.Event) {
				if e.Kind == core.EventAdopted {
					adopted++
				}
			}})
			const longest = time.Minute
			s := semaphore(t, g, core.SemaphoreConfig{TTL: 10 * time.Second, MaxHold: longest, OnLoss: core.AdoptOnLoss})
			start, key := time.Now(), newKey(t, "k")
			l := take(t, s, core.Level{Key: key, Limit: 1})
			for range 4 {
				time.Sleep(longest / 5)
				holders, _, err := s.Holders(t.Context(), key)
				if err != nil || len(holders) != 1 {
					t.Fatal(holders, err)
				}
				if _, err := core.Drop(g, s, key, holders[0].ID); err != nil {
					t.Fatal(err)
				}
				if err := l.Extend(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			<-l.Lost()
			if took := time.Since(start); adopted != 4 || took > longest || took < longest*4/5 {
				t.Errorf("lost after %v, adopted %d times", took, adopted)
			}
			free(t, l)
			if err := g.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
}

// A lease that is adopted is renewed from then on, also beside one that is to be renewed much
// later.
func TestAdoptedIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memoryGate(t, core.Config{})
		long := semaphore(t, g, core.SemaphoreConfig{Name: "long", TTL: time.Hour})
		s := semaphore(t, g, core.SemaphoreConfig{TTL: 10 * time.Second, OnLoss: core.AdoptOnLoss})
		level := core.Level{Key: newKey(t, "k"), Limit: 1}
		other, l := take(t, long, level), take(t, s, level)
		l.Overdue()
		synctest.Wait()
		for range 3 {
			time.Sleep(time.Minute)
			if holders, _, err := s.Holders(t.Context(), level.Key); err != nil || len(holders) != 1 {
				t.Fatal(holders, err)
			}
		}
		free(t, l)
		free(t, other)
		if err := g.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// What could not be renewed in time, as in a process that stood still, is asked for once more where
// it is to be adopted.
func TestAdoptedAfterItsTime(t *testing.T) {
	eachLeaseGate(t, func(t *testing.T, g *core.Gate) {
		for name, taken := range map[string]bool{"free": false, "taken": true} {
			s := semaphore(t, g, core.SemaphoreConfig{OnLoss: core.AdoptOnLoss})
			level := core.Level{Key: newKey(t, "k"), Limit: 1}
			l := take(t, s, level)
			token := l.Token()
			holders, _, err := s.Holders(t.Context(), level.Key)
			if err != nil || len(holders) != 1 {
				t.Fatal(holders, err)
			}
			if _, err := core.Drop(g, s, level.Key, holders[0].ID); err != nil {
				t.Fatal(err)
			}
			var other *core.Lease
			if taken {
				other = take(t, s, level)
			}
			l.Overdue()
			for l.Token() == token && l.Context().Err() == nil {
				if t.Context().Err() != nil {
					t.Fatal(t.Context().Err())
				}
			}
			if lost := l.Context().Err() != nil; lost != taken {
				t.Errorf("%s: lost %v, token %d after %d", name, lost, l.Token(), token)
			}
			free(t, l, other)
		}
	})
}
