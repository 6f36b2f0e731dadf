package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// wantPanic calls f and checks that it panics with want.
func wantPanic(t *testing.T, want any, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if got := recover(); got != want {
			t.Errorf("panic %v, want %v", got, want)
		}
	}()
	f()
}

// eachStore runs f with a func that opens a Gate in memory, and with one for every Redis.
func eachStore(t *testing.T, f func(t *testing.T, open func(core.Config) *core.Gate)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		f(t, func(cfg core.Config) *core.Gate { return memoryGate(t, cfg) })
	})
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		f(t, func(cfg core.Config) *core.Gate {
			cfg.Prefix = s.Prefix
			return redisGate(t, s.Client(t), cfg)
		})
	})
}

// A panic in Observe takes no slot and spends nothing.
func TestPanicInObserveTakesNothing(t *testing.T) {
	t.Parallel()
	policy := limited(t, "p", frozen(1))
	charge := core.Charge{Policy: policy, Key: newKey(t, "k"), Cost: 1}
	slot := semaphore.Request{Caps: []semaphore.Cap{{Key: newKey(t, "k"), Limit: 1}}}
	waiting := slot
	waiting.MaxWait = semaphore.Forever
	for name, tt := range map[string]struct {
		event   string
		slot    semaphore.Request
		charges []core.Charge
	}{
		"no wait":                        {"acquire", slot, nil},
		"wait":                           {"acquire", waiting, nil},
		"charge, event of the slot":      {"acquire", slot, []core.Charge{charge}},
		"charge, event of the charge":    {"decide", slot, []core.Charge{charge}},
		"wait and charge, of the slot":   {"acquire", waiting, []core.Charge{charge}},
		"wait and charge, of the charge": {"decide", waiting, []core.Charge{charge}},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(t *testing.T, newGate func(core.Config) *core.Gate) {
				var fired atomic.Bool
				g := newGate(core.Config{Observe: func(_ context.Context, e core.Event) {
					if e.EventName() == tt.event && !fired.Swap(true) {
						panic("observer")
					}
				}})
				s := newSemaphore(t, g, semaphore.Config{})
				wantPanic(t, "observer", func() { _, _, _ = s.Admit(t.Context(), tt.slot, tt.charges...) })
				eventually(t, "the refund, which runs in the background, makes room", func() bool {
					l, d, err := s.Admit(t.Context(), slot, charge)
					if l == nil && !errors.Is(err, semaphore.ErrFull) {
						t.Fatalf("%v, %s", err, show(d))
					}
					release(t, l)
					return l != nil
				})
				worked(t, g.Close(t.Context()))
			}
			eachStore(t, check)
		})
	}
}

// events records the events of slots.
type events struct {
	mu  sync.Mutex
	all []core.Event
}

func (e *events) observe(_ context.Context, event core.Event) {
	switch told := event.(type) { // are used again
	case *semaphore.AcquireEvent:
		event = copyOf(told)
	case *semaphore.LeaseEvent:
		event = copyOf(told)
	default:
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

func copyOf[T any](p *T) *T {
	c := *p
	return &c
}

// wait returns the first event of a lease with that change, as soon as there is one.
func (e *events) wait(t *testing.T, change semaphore.LeaseChange) (found *semaphore.LeaseEvent) {
	t.Helper()
	eventually(t, fmt.Sprintf("the event %v", change), func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, event := range e.all {
			if event, ok := event.(*semaphore.LeaseEvent); ok && event.Kind == change {
				found = event
				return true
			}
		}
		return false
	})
	return found
}

func TestEventsOfSlots(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, open func(core.Config) *core.Gate) {
		var e events
		g := open(core.Config{Observe: e.observe})
		s := newSemaphore(t, g, semaphore.Config{})
		level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
		l := acquire(t, s, level)
		wantFull(t, s, "a second", level)
		e.mu.Lock()
		var told []*semaphore.AcquireEvent
		for _, e := range e.all {
			if e, ok := e.(*semaphore.AcquireEvent); ok {
				told = append(told, e)
			}
		}
		e.mu.Unlock()
		first, second := told[0], told[1]
		if first.Semaphore != s || first.Err != nil || first.Full != nil {
			t.Errorf("acquired: %+v", first)
		}
		if second.Err != nil || second.Full == nil {
			t.Errorf("full: %+v", second)
		}
		noError(t, l.Release(t.Context()))
		if released := e.wait(t, semaphore.LeaseReleased); released.Semaphore != s || released.Err != nil {
			t.Errorf("released: %+v", released)
		}
		acquire(t, s, level)
		evict(t, s, level.Key)
		if evicted := e.wait(t, semaphore.LeaseEvicted); evicted.Semaphore != s || !errors.Is(evicted.Err, semaphore.ErrLeaseLost) {
			t.Errorf("evicted: %+v", evicted)
		}
		l = acquire(t, s, level)
		forget(t, s, level.Key)
		gatetest.Is(t, l.Extend(t.Context()), semaphore.ErrLeaseLost, "extended")
		if lost := e.wait(t, semaphore.LeaseLost); lost.Semaphore != s || !errors.Is(lost.Err, semaphore.ErrLeaseLost) {
			t.Errorf("lost: %+v", lost)
		}
	}
	eachStore(t, check)
}

func TestEnumerationsHaveNames(t *testing.T) {
	gatetest.Names(t, semaphore.LossCancel, semaphore.LossAdopt, semaphore.LossPolicy(9))
	gatetest.Names(t, semaphore.LeaseReleased, semaphore.LeaseLost, semaphore.LeaseAdopted, semaphore.LeaseEvicted,
		semaphore.LeaseChange(9))
}
