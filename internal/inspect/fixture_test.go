package inspect_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

var (
	eachGate  = gatetest.Each
	newKey    = gatetest.Key
	newPolicy = gatetest.Policy
	limited   = gatetest.Limited
	decide    = gatetest.Decide
	noError   = gatetest.NoError
	worked    = gatetest.Worked
)

func newInspector(t *testing.T, cfg inspect.Config) *inspect.Inspector {
	t.Helper()
	i := gatetest.Must(inspect.New(cfg, "test"))(t)
	return i
}

// lookup returns how a key stands, and fails the test if a part of the answer is missing.
func lookup(t *testing.T, i *inspect.Inspector, key core.Key) *inspect.Subject {
	t.Helper()
	s := gatetest.Must(i.Lookup(t.Context(), key))(t)
	if len(s.Faults) > 0 || s.Outage != nil {
		t.Fatalf("faults %v, outage %v", s.Faults, s.Outage)
	}
	return s
}

func newSemaphore(t *testing.T, g *core.Gate, name string) *semaphore.Semaphore {
	t.Helper()
	s := gatetest.Must(semaphore.New(g, semaphore.Config{Name: name, TTL: time.Minute}))(t)
	return s
}

// hear returns once the process hears what waiters at a key are told. A waiter that does not hear yet
// asks again once it does, and its second question may overtake a later one, whose clock has moved on.
func hear(t *testing.T, g *core.Gate, key core.Key) {
	t.Helper()
	s := newSemaphore(t, g, "heard")
	ask := semaphore.Request{Caps: []semaphore.Cap{{Key: key, Limit: 1}}}
	for range 2 {
		l := gatetest.Must(s.Acquire(t.Context(), ask))(t)
		var once sync.Once
		ask.MaxWait = semaphore.Forever
		ask.OnQueue = func(int) { once.Do(func() { go func() { _ = l.Release(context.Background()) }() }) }
	}
	queue(t, s, semaphore.Request{Caps: ask.Caps})
}

// queue lets a caller wait until the test ends.
func queue(t *testing.T, s *semaphore.Semaphore, r semaphore.Request) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	queued, left := make(chan struct{}), make(chan struct{})
	first := true
	r.MaxWait = semaphore.Forever
	r.OnQueue = func(int) {
		if first {
			close(queued)
		}
		first = false
	}
	go func() {
		defer close(left)
		if l, err := s.Acquire(ctx, r); err == nil {
			_ = l.Release(context.Background())
		}
	}()
	t.Cleanup(func() { cancel(); <-left })
	select {
	case <-queued:
	case <-left:
		t.Fatal("the caller does not wait")
	}
}
