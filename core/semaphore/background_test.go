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

// Admit of background work spends nothing while it waits for its slot, and nothing without it.
func TestBackgroundAdmitSpendsWithItsSlot(t *testing.T) {
	t.Parallel()
	eachLeaseGate(t, func(t *testing.T, g *core.Gate) {
		s := newSemaphore(t, g, semaphore.Config{})
		level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
		p := limited(t, "p", frozen(2))
		charge := core.Charge{Policy: p, Key: level.Key}
		back, cancel := context.WithCancel(core.WithBackground(t.Context()))
		defer cancel()
		admits := func(maxWait time.Duration) <-chan *semaphore.Lease {
			leases, queued := make(chan *semaphore.Lease, 1), make(chan struct{}, 100)
			go func() {
				l, d, err := s.Admit(back, semaphore.Request{
					Caps: []semaphore.Cap{level}, MaxWait: maxWait, OnQueue: func(int) { queued <- struct{}{} },
				}, charge)
				if (l != nil) != d.Allowed || d.Len() != 1 && back.Err() == nil {
					t.Errorf("%v, allowed %v, %d results, %v", l, d.Allowed, d.Len(), err)
				}
				leases <- l
				queued <- struct{}{}
			}()
			<-queued
			return leases
		}
		held := acquire(t, s, level)
		first := admits(longTimeout)
		wantUsed(t, g, p, level.Key, 0)
		release(t, held)
		held = <-first
		wantUsed(t, g, p, level.Key, 1)
		if l := <-admits(time.Millisecond); l != nil {
			t.Error("there were two slots")
		}
		second := admits(longTimeout)
		decide(t, g, charge) // the last unit is gone
		release(t, held)
		if l := <-second; l != nil {
			t.Error("a third unit was spent")
		}
		wantUsed(t, g, p, level.Key, 2)
		if l := <-admits(longTimeout); l != nil { // a rule that denies waits for no slot
			t.Error("a third unit was spent")
		}
		release(t, acquire(t, s, level))
		worked(t, g.Reset(t.Context(), charge))
	})
}
