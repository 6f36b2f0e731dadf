package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
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
		worked(t, err)
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

// A release goes to the user below its floor, and the next one to a user that has used less of the
// slot than the one with more and older requests.
func TestSlotsFollowShares(t *testing.T) {
	t.Parallel()
	eachLeaseGate(t, func(t *testing.T, g *core.Gate) {
		s := newSemaphore(t, g, semaphore.Config{TTL: time.Minute, MaxWaiters: 1000})
		acme := newKey(t, "acme")
		enqueue := func(user string, share, floor int64) (id string) {
			id = gatetest.Must(s.Enqueue(t.Context(), semaphore.Request{Caps: []semaphore.Cap{
				{Key: acme, Limit: 1},
				{Key: newKey(t, "acme", user), Limit: 1, Share: share, Floor: floor},
			}}))(t)
			return id
		}
		leave := func(id string) {
			gatetest.NoError(t, s.Leave(t.Context(), acme, id))
		}
		var ids []string
		for range 40 {
			ids = append(ids, enqueue("many", 0, 0))
		}
		for range 10 {
			ids = append(ids, enqueue("few", 3, 0))
		}
		floor := enqueue("floor", 0, 1)
		got := ""
		for range 4 {
			holders, _, err := s.Holders(t.Context(), acme)
			if err != nil || len(holders) != 1 {
				t.Fatal(holders, err)
			}
			got += holders[0].Key.Parts()[1] + " "
			leave(holders[0].ID)
		}
		if !strings.HasPrefix(got, "many floor few ") {
			t.Errorf("the slot went to %s", got)
		}
		for _, id := range append(ids, floor) {
			leave(id)
		}
	})
}

func TestSlotSharesAreChecked(t *testing.T) {
	t.Parallel()
	eachLeaseGate(t, func(t *testing.T, g *core.Gate) {
		s := newSemaphore(t, g, semaphore.Config{})
		acme, user := newKey(t, "acme"), newKey(t, "acme", "user")
		for want, levels := range map[string][]semaphore.Cap{
			"cap 1: Share is -1":   {{Key: acme, Limit: 1}, {Key: user, Limit: 1, Share: -1}},
			"cap 1: Share is 1001": {{Key: acme, Limit: 1}, {Key: user, Limit: 1, Share: semaphore.MaxShare + 1}},
			"cap 1: Floor is -1":   {{Key: acme, Limit: 1}, {Key: user, Limit: 1, Floor: -1}},
			"cap 1: Floor is 2":    {{Key: acme, Limit: 2}, {Key: user, Limit: 1, Floor: 2}},
			"cap 0: Weight is 3":   {{Key: acme, Limit: 2, Weight: 3}, {Key: user, Limit: 3, Weight: 3}},
			"cap 0: Share is 2":    {{Key: acme, Limit: 1, Share: 2}},
			"cap 0: Floor is 1":    {{Key: acme, Limit: 1, Floor: 1}, {Key: user, Limit: 1}},
		} {
			l, err := s.Acquire(t.Context(), semaphore.Request{Caps: levels, MaxWait: semaphore.Forever})
			if l != nil || !errors.Is(err, semaphore.ErrRequest) || !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%v, want an error with %q", err, want)
			}
		}
		if holders, waiting, err := s.Holders(t.Context(), acme); len(holders)+waiting > 0 || err != nil {
			t.Errorf("%v, %d wait, %v", holders, waiting, err)
		}
		release(t, acquire(t, s, semaphore.Cap{Key: acme, Limit: 2, Weight: 2},
			semaphore.Cap{Key: user, Limit: 2, Weight: 2, Share: semaphore.MaxShare, Floor: 2}))
	})
}
