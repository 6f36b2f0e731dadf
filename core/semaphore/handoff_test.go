package semaphore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/redistest"
)

const contenders = 8

// handoff is a lock that several goroutines contend for, each with its own functions.
type handoff []struct{ lock, unlock func() }

// run gives every goroutine its turns.
func (h handoff) run(turns int) {
	var wg sync.WaitGroup
	for _, c := range h {
		wg.Go(func() {
			for range turns {
				c.lock()
				<-time.After(500 * time.Microsecond)
				c.unlock()
				<-time.After(2 * time.Millisecond)
			}
		})
	}
	wg.Wait()
}

// semaphores returns Gates that share a Redis and contend for one slot, as processes do.
func semaphores(t testing.TB, server *redistest.Server) handoff {
	return contend(t, func() *core.Gate { return redisGate(t, server.Client(t), core.Config{Prefix: server.Prefix}) })
}

// contend makes Gates that contend for one slot.
func contend(t testing.TB, newGate func() *core.Gate) (h handoff) {
	level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
	for range contenders {
		g := newGate()
		t.Cleanup(func() { _ = g.Close(context.Background()) })
		s := newSemaphore(t, g, semaphore.Config{TTL: time.Minute, OnFailure: core.FailClosed})
		var l *semaphore.Lease
		h = append(h, struct{ lock, unlock func() }{
			lock: func() {
				var err error
				if l, err = s.Acquire(context.Background(), semaphore.Request{Caps: []semaphore.Cap{level}, MaxWait: semaphore.Forever}); err != nil {
					t.Error(err)
				}
			},
			unlock: func() {
				worked(t, l.Release(context.Background()))
			},
		})
	}
	return h
}

// A contended slot costs two calls: one acquires and one releases. A waiter is notified of its
// turn. A holder that was alone at first makes one call more.
func TestHandoffTakesTwoCalls(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	h := semaphores(t, server)
	h.run(3) // so that every Gate is subscribed
	const turns = 20
	before := server.Calls(t, "evalsha", "eval")
	h.run(turns)
	if n := server.Calls(t, "evalsha", "eval") - before; n > (2*turns+1)*contenders {
		t.Errorf("%d calls for %d turns", n, turns*contenders)
	}
}

// An acquire or a release costs a call. Only the first one that finds other callers where there were
// none costs two.
func TestOperationTakesOneCall(t *testing.T) {
	t.Parallel()
	server, ctx := redistest.Start(t), t.Context()
	h := semaphores(t, server)[:2]
	pair := func(i int) { h[i].lock(); h[i].unlock() }
	for i := range h {
		pair(i) // so that every Gate is subscribed
	}
	for _, name := range []string{"lease", "take", "leave"} {
		noError(t, server.Client(t).ScriptLoad(ctx, headgate.Script(name)).Err())
	}
	s := newSemaphore(t, redisGate(t, server.Client(t), core.Config{Prefix: server.Prefix}),
		semaphore.Config{TTL: time.Minute, OnFailure: core.FailClosed})
	try := func() {
		ask := semaphore.Request{Caps: []semaphore.Cap{{Key: newKey(t, "k"), Limit: 1}}}
		if _, err := s.Acquire(ctx, ask); !errors.Is(err, semaphore.ErrFull) {
			t.Error(err)
		}
	}
	for _, step := range []struct {
		name string
		do   func()
		most int64
	}{
		{"alone", func() { pair(0); pair(1) }, 4},
		{"held", h[0].lock, 1},
		{"refused for the first time", try, 2},
		{"refused again", func() { try(); try() }, 2},
		{"others came", h[0].unlock, 2},
		{"given up", func() { pair(0); pair(0); pair(1) }, 6},
		{"held and refused again and again", func() {
			for range 5 {
				h[0].lock()
				try()
				h[0].unlock()
			}
		}, 5*3 + 1},
	} {
		before := server.Calls(t, "evalsha", "eval")
		step.do()
		if n := server.Calls(t, "evalsha", "eval") - before; n > step.most {
			t.Errorf("%s: %d calls", step.name, n)
		}
	}
}
