package core_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// use holds slots, waits for them in vain and with success, and gives up, so that every goroutine
// of a Gate runs.
func use(t *testing.T, g *core.Gate) {
	t.Helper()
	s := semaphore(t, g, core.SemaphoreConfig{TTL: time.Second})
	level := core.Level{Key: newKey(t, "k"), Limit: 1}
	first := take(t, s, level)
	second := queue(t, s, level)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := s.Acquire(ctx, core.SlotRequest{Levels: []core.Level{level}, OnQueue: func(int) { cancel() }}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	free(t, first)
	free(t, <-second)
}

// After Close no goroutine, subscription or lease of a Gate remains, whatever goes on when it is
// called.
func TestNothingRemainsAfterClose(t *testing.T) {
	for name, during := range map[string]func(t *testing.T, g *core.Gate) (after func()){
		"idle": func(*testing.T, *core.Gate) func() { return func() {} },
		"somebody waits": func(t *testing.T, g *core.Gate) func() {
			s := semaphore(t, g, core.SemaphoreConfig{TTL: time.Second})
			level := core.Level{Key: newKey(t, "other"), Limit: 1} // at which nobody is about to leave
			take(t, s, level)                                      // until Close takes it away
			queued, waited := make(chan struct{}), make(chan error)
			var once sync.Once
			go func() {
				_, err := s.Acquire(context.Background(), core.SlotRequest{Levels: []core.Level{level}, OnQueue: func(int) { once.Do(func() { close(queued) }) }})
				waited <- err
			}()
			<-queued
			return func() {
				if err := <-waited; !errors.Is(err, core.ErrClosed) {
					t.Errorf("who waits: %v", err)
				}
			}
		},
		"many come": func(t *testing.T, g *core.Gate) func() {
			s := semaphore(t, g, core.SemaphoreConfig{TTL: time.Second})
			level := core.Level{Key: newKey(t, "other"), Limit: 2}
			var all sync.WaitGroup
			var some sync.WaitGroup
			for range 8 {
				some.Add(1)
				all.Go(func() {
					first := sync.OnceFunc(some.Done)
					for {
						l, err := s.Acquire(context.Background(), core.SlotRequest{Levels: []core.Level{level}})
						if errors.Is(err, core.ErrClosed) {
							return
						} else if err != nil {
							t.Error(err)
						}
						first()
						_ = l.Release(context.Background()) // Close may have been first
					}
				})
			}
			some.Wait()
			return all.Wait
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			client, admin := server.Client(t), server.Client(t)
			admin.Ping(t.Context())
			before := goleak.IgnoreCurrent()
			g := redisGate(t, client, core.Config{})
			use(t, g)
			after := during(t, g)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := g.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if keys := admin.Keys(t.Context(), "*").Val(); len(keys) > 0 {
				t.Errorf("keys remain: %v", keys)
			}
			after()
			if err := goleak.Find(before); err != nil {
				t.Error(err)
			}
			for giveUp := time.Now().Add(patient); len(admin.PubSubChannels(t.Context(), "*").Val()) > 0; {
				if time.Now().After(giveUp) {
					t.Fatal("a subscription remains")
				}
			}
		})
	}
}

// Without Close something does remain, and goleak finds it.
func TestLeakIsFound(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	before := goleak.IgnoreCurrent()
	g := redisGate(t, client, core.Config{})
	use(t, g)
	if err := goleak.Find(before); err == nil {
		t.Error("nothing is found")
	}
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}
