package semaphore_test

import (
	"context"
	"testing"

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
