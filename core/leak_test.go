package core_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/redistest"
)

// exercise makes every goroutine of a Gate run: it holds slots, waits for them with and without
// success, and gives up.
func exercise(t *testing.T, g *core.Gate) {
	t.Helper()
	s := newSemaphore(t, g, semaphore.Config{TTL: time.Second})
	level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
	first := acquire(t, s, level)
	second := enqueue(t, s, level)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := s.Acquire(ctx, semaphore.Request{Caps: []semaphore.Cap{level}, MaxWait: semaphore.Forever, OnQueue: func(int) { cancel() }}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	release(t, first)
	release(t, <-second)
}

// After Close no goroutine, subscription or lease of the Gate remains, whatever goes on when Close
// is called.
func TestNothingRemainsAfterClose(t *testing.T) {
	for name, during := range map[string]func(t *testing.T, g *core.Gate) (after func()){
		"idle": func(*testing.T, *core.Gate) func() { return func() {} },
		"a caller waits": func(t *testing.T, g *core.Gate) func() {
			s := newSemaphore(t, g, semaphore.Config{TTL: time.Second})
			// No holder is about to release this level. Close does.
			level := semaphore.Cap{Key: newKey(t, "other"), Limit: 1}
			acquire(t, s, level)
			queued, waited := make(chan struct{}), make(chan error)
			var once sync.Once
			go func() {
				_, err := s.Acquire(context.Background(), semaphore.Request{Caps: []semaphore.Cap{level}, MaxWait: semaphore.Forever, OnQueue: func(int) { once.Do(func() { close(queued) }) }})
				waited <- err
			}()
			<-queued
			return func() {
				if err := <-waited; !errors.Is(err, core.ErrClosed) {
					t.Errorf("waiter: %v", err)
				}
			}
		},
		"many callers acquire": func(t *testing.T, g *core.Gate) func() {
			s := newSemaphore(t, g, semaphore.Config{TTL: time.Second})
			level := semaphore.Cap{Key: newKey(t, "other"), Limit: 2}
			var finished sync.WaitGroup
			var started sync.WaitGroup
			for range 8 {
				started.Add(1)
				finished.Go(func() {
					markStarted := sync.OnceFunc(started.Done)
					for {
						l, err := s.Acquire(context.Background(), semaphore.Request{Caps: []semaphore.Cap{level}, MaxWait: semaphore.Forever})
						if errors.Is(err, core.ErrClosed) {
							return
						} else if err != nil {
							t.Error(err)
						}
						markStarted()
						_ = l.Release(context.Background()) // Close may have released it
					}
				})
			}
			started.Wait()
			return finished.Wait
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			client, admin := server.Client(t), server.Client(t)
			admin.Ping(t.Context())
			before := goleak.IgnoreCurrent()
			g := redisGate(t, client, core.Config{})
			exercise(t, g)
			after := during(t, g)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := g.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if keys := redistest.Keys(t, admin, "*"); len(keys) > 0 {
				t.Errorf("keys remain: %v", keys)
			}
			after()
			worked(t, goleak.Find(before))
			eventually(t, "no subscription remains", func() bool {
				return len(admin.PubSubChannels(t.Context(), "*").Val()) == 0
			})
		})
	}
}
