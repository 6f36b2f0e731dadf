package gatetest

import (
	"cmp"
	"context"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
)

// Semaphore is semaphore.New. Its name is sem if cfg has none.
func Semaphore(t testing.TB, g *core.Gate, cfg semaphore.Config) *semaphore.Semaphore {
	t.Helper()
	cfg.Name = cmp.Or(cfg.Name, "sem")
	return Must(semaphore.New(g, cfg))(t)
}

// Acquire waits for a slot.
func Acquire(t testing.TB, s *semaphore.Semaphore, caps ...semaphore.Cap) *semaphore.Lease {
	t.Helper()
	return Must(s.Acquire(t.Context(), semaphore.Request{Caps: caps, MaxWait: semaphore.Forever}))(t)
}

// Queue acquires in the background, and returns once the caller waits or has its slot.
func Queue(
	t testing.TB, ctx context.Context, s *semaphore.Semaphore, caps ...semaphore.Cap,
) <-chan *semaphore.Lease {
	t.Helper()
	leases, queued := make(chan *semaphore.Lease, 1), make(chan struct{}, 100)
	go func() {
		l, err := s.Acquire(ctx, semaphore.Request{
			Caps: caps, MaxWait: LongTimeout, OnQueue: func(int) { queued <- struct{}{} },
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

// Enqueue is Queue without an end.
func Enqueue(t testing.TB, s *semaphore.Semaphore, caps ...semaphore.Cap) <-chan *semaphore.Lease {
	t.Helper()
	return Queue(t, context.Background(), s, caps...)
}

// Release gives slots back.
func Release(t testing.TB, leases ...*semaphore.Lease) {
	t.Helper()
	for _, l := range leases {
		Worked(t, l.Release(t.Context()))
	}
}
