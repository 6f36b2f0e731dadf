package core_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
)

func newSemaphore(t testing.TB, g *core.Gate, cfg semaphore.Config) *semaphore.Semaphore {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "sem"
	}
	s := gatetest.Must(semaphore.New(g, cfg))(t)
	return s
}

func acquire(t *testing.T, s *semaphore.Semaphore, caps ...semaphore.Cap) *semaphore.Lease {
	t.Helper()
	l := gatetest.Must(s.Acquire(t.Context(), semaphore.Request{Caps: caps}))(t)
	return l
}

// enqueue acquires a slot in the background. It returns once the caller is queued.
func enqueue(
	t *testing.T, s *semaphore.Semaphore, caps ...semaphore.Cap,
) <-chan *semaphore.Lease {
	t.Helper()
	queued, granted := make(chan struct{}, 100), make(chan *semaphore.Lease, 1)
	go func() {
		l, err := s.Acquire(context.Background(), semaphore.Request{
			Caps: caps, MaxWait: longTimeout, OnQueue: func(int) { queued <- struct{}{} },
		})
		if err != nil {
			t.Error(err)
		}
		granted <- l
		queued <- struct{}{} // also if it was not queued
	}()
	<-queued
	return granted
}

func release(t *testing.T, leases ...*semaphore.Lease) {
	t.Helper()
	for _, l := range leases {
		worked(t, l.Release(t.Context()))
	}
}

func do(t testing.TB, client *redis.Client, args ...any) {
	t.Helper()
	noError(t, client.Do(t.Context(), args...).Err())
}
