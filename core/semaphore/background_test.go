package semaphore_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
)

// The next slot goes to who waits in the foreground, however many wait in the background and since when.
func TestForegroundTakesTheNextSlot(t *testing.T) {
	t.Parallel()
	eachLeaseGate(t, func(t *testing.T, g *core.Gate) {
		s := newSemaphore(t, g, semaphore.Config{})
		back := core.WithBackground(t.Context())
		tenant, user := newKey(t, "k"), newKey(t, "k", "user")
		for _, caps := range [][]semaphore.Cap{
			{{Key: tenant, Limit: 1}},
			{{Key: tenant, Limit: 1}, {Key: user, Limit: 1}},
		} {
			held := acquire(t, s, caps...)
			first, second := queue(t, back, s, caps...), queue(t, back, s, caps...)
			third := queue(t, t.Context(), s, caps...)
			for i, next := range []<-chan *semaphore.Lease{third, first, second} {
				release(t, held)
				if held = <-next; held == nil {
					t.Fatalf("slot %d went to nobody", i)
				}
			}
			release(t, held)
		}
		m := gatetest.Must(semaphore.NewMutex(g, semaphore.MutexConfig{Name: "lock"}))(t)
		held := gatetest.Must(m.Lock(back, tenant))(t)
		release(t, held)
	})
}

// Whoever has waited in the background for half of its time comes in the order of its arrival.
func TestBackgroundWaiterIsServedInTurn(t *testing.T) {
	const patience = 10 * time.Second
	tests := []struct {
		name             string
		maxWait, timeout time.Duration
		order            []string
	}{
		{"MaxWait", patience, time.Hour, []string{"early", "back", "late"}},
		{"deadline", semaphore.Forever, patience, []string{"early", "back", "late"}},
		{"no end", semaphore.Forever, 0, []string{"early", "late", "back"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSemaphore(t, memoryGate(t, core.Config{}), semaphore.Config{})
				level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
				var mu sync.Mutex
				var order []string
				var all sync.WaitGroup
				waits := func(ctx context.Context, name string, maxWait time.Duration) {
					all.Go(func() {
						l, err := s.Acquire(ctx, semaphore.Request{Caps: []semaphore.Cap{level}, MaxWait: maxWait})
						if err != nil {
							t.Errorf("%s: %v", name, err)
						}
						mu.Lock()
						order = append(order, name)
						mu.Unlock()
						time.Sleep(time.Second) // in a bubble: the slot is held for a while
						release(t, l)
					})
					synctest.Wait()
				}
				held := acquire(t, s, level)
				back := core.WithBackground(t.Context())
				if tt.timeout > 0 {
					var cancel context.CancelFunc
					back, cancel = context.WithTimeout(back, tt.timeout)
					defer cancel()
				}
				waits(back, "back", tt.maxWait)
				waits(t.Context(), "early", semaphore.Forever)
				time.Sleep(patience/2 - 2*time.Second) // in a bubble
				release(t, held)                       // early has the slot
				time.Sleep(time.Second / 2)
				held = acquire(t, s, level)
				waits(t.Context(), "late", semaphore.Forever)
				time.Sleep(patience/4 - time.Second/2)
				release(t, held)
				all.Wait()
				if !slices.Equal(order, tt.order) {
					t.Errorf("%v, want %v", order, tt.order)
				}
			})
		})
	}
}
