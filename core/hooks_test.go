package core_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
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

// A panic in Observe takes no slot and spends nothing.
func TestPanicInObserveTakesNothing(t *testing.T) {
	ask := func(t *testing.T) core.SlotRequest {
		return core.SlotRequest{Levels: []core.Level{{Key: newKey(t, "k"), Limit: 1}}}
	}
	policy := limited(t, "p", frozen(1))
	for name, tt := range map[string]struct {
		name string
		take func(t *testing.T, s *core.Semaphore) (*core.Lease, error)
	}{
		"TryAcquire": {"acquire", func(t *testing.T, s *core.Semaphore) (*core.Lease, error) { return s.TryAcquire(t.Context(), ask(t)) }},
		"Acquire":    {"acquire", func(t *testing.T, s *core.Semaphore) (*core.Lease, error) { return s.Acquire(t.Context(), ask(t)) }},
		"TryAdmit, event of the slot": {"acquire", func(t *testing.T, s *core.Semaphore) (*core.Lease, error) {
			l, _, err := s.TryAdmit(t.Context(), ask(t), core.Charge{Policy: policy, Key: newKey(t, "k"), Cost: 1})
			return l, err
		}},
		"TryAdmit, event of the charges": {"decide", func(t *testing.T, s *core.Semaphore) (*core.Lease, error) {
			l, _, err := s.TryAdmit(t.Context(), ask(t), core.Charge{Policy: policy, Key: newKey(t, "k"), Cost: 1})
			return l, err
		}},
		"Admit, event of the slot": {"acquire", func(t *testing.T, s *core.Semaphore) (*core.Lease, error) {
			l, _, err := s.Admit(t.Context(), ask(t), core.Charge{Policy: policy, Key: newKey(t, "k"), Cost: 1})
			return l, err
		}},
		"Admit, event of the charges": {"decide", func(t *testing.T, s *core.Semaphore) (*core.Lease, error) {
			l, _, err := s.Admit(t.Context(), ask(t), core.Charge{Policy: policy, Key: newKey(t, "k"), Cost: 1})
			return l, err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(t *testing.T, newGate func(core.Config) *core.Gate) {
				armed := true
				g := newGate(core.Config{Observe: func(_ context.Context, e core.Event) {
					if armed && e.EventName() == tt.name {
						armed = false
						panic("observer")
					}
				}})
				s := semaphore(t, g, core.SemaphoreConfig{})
				wantPanic(t, "observer", func() { _, _ = tt.take(t, s) })
				eventually(t, "the refund, which runs in the background, makes room", func() bool {
					l, d, err := s.TryAdmit(t.Context(), ask(t), core.Charge{Policy: policy, Key: newKey(t, "k"), Cost: 1})
					if l == nil && !errors.Is(err, core.ErrFull) {
						t.Fatalf("%v, %s", err, show(d))
					}
					release(t, l)
					return l != nil
				})
				if err := g.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
			t.Run("memory", func(t *testing.T) {
				check(t, func(cfg core.Config) *core.Gate { return memoryGate(t, cfg) })
			})
			redistest.Each(t, func(t *testing.T, srv *redistest.Server) {
				check(t, func(cfg core.Config) *core.Gate {
					cfg.Prefix = srv.Prefix
					return redisGate(t, srv.Client(t), cfg)
				})
			})
		})
	}
}

// Hooks of the user's client, such as tracing, see the decisions.
func TestHooksAreCalled(t *testing.T) {
	for _, inline := range []bool{false, true} {
		s := redistest.Start(t)
		client := s.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = inline })
		var seen evalCounter
		client.AddHook(&seen)
		g := redisGate(t, client, core.Config{})
		decide(t, g, core.Charge{Policy: limited(t, "p", frozen(100)), Key: newKey(t, "k"), Cost: 1})
		if n := seen.Load(); n == 0 {
			t.Errorf("inline %v: the hook was not called", inline)
		}
	}
}

// evalCounter is a hook that counts scripts.
type evalCounter struct{ atomic.Int64 }

func (*evalCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*evalCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *evalCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			h.Add(1)
		}
		return next(ctx, cmd)
	}
}
