package semaphore_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
)

// A caller that takes the whole cap of a tenant gets its turn beside users who take it piece by
// piece and come again at once, and then runs alone.
func TestHeavyCallerGetsItsTurn(t *testing.T) {
	t.Parallel()
	eachLeaseGate(t, func(t *testing.T, g *core.Gate) {
		s := newSemaphore(t, g, semaphore.Config{})
		caps := func(user string, weight int64) []semaphore.Cap {
			return []semaphore.Cap{
				{Key: newKey(t, "t"), Limit: 4, Weight: weight}, {Key: newKey(t, "t", user), Limit: 4, Weight: weight},
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), longTimeout)
		defer cancel()
		var over atomic.Bool
		var running atomic.Int64
		var users sync.WaitGroup
		began := make(chan struct{}, 6)
		for i := range 6 {
			users.Go(func() {
				for first := true; !over.Load(); first = false {
					l, err := s.Acquire(ctx, semaphore.Request{Caps: caps(fmt.Sprint("u", i), 1), MaxWait: semaphore.Forever})
					if first {
						began <- struct{}{}
					}
					if err != nil {
						t.Error(err)
						break
					}
					running.Add(1)
					runtime.Gosched()
					running.Add(-1)
					release(t, l)
				}
			})
		}
		for range 6 {
			<-began
		}
		heavy, err := s.Acquire(ctx, semaphore.Request{Caps: caps("heavy", 4), MaxWait: semaphore.Forever})
		if err != nil {
			t.Error(err)
		}
		if n := running.Load(); err == nil && n > 0 {
			t.Errorf("%d users run beside the heavy caller", n)
		}
		over.Store(true)
		if err == nil {
			release(t, heavy)
		}
		users.Wait()
	})
}
