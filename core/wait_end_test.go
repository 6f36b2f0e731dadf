package core_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// watchedWait is a Gate whose first Reserve by a Limiter is told of, and which counts what goes back.
type watchedWait struct {
	*core.Gate
	reserved chan core.Decision // of the first Reserve, before the caller has its answer
	onWait   atomic.Pointer[func()]
	cancels  atomic.Int64
}

// eachWatchedWait is eachGate with Gates whose clocks stand still.
func eachWatchedWait(t *testing.T, f func(t *testing.T, w *watchedWait)) {
	t.Helper()
	eachOpen(t, func(t *testing.T, _ *core.ManualClock, open func(core.Config) *core.Gate) {
		w := &watchedWait{reserved: make(chan core.Decision, 1)}
		w.Gate = open(core.Config{Observe: func(_ context.Context, e core.Event) {
			switch e := e.(type) {
			case *core.DecisionEvent:
				if e.Op == core.OpReserve {
					select {
					case w.reserved <- e.Decision:
					default:
					}
					if act := w.onWait.Swap(nil); act != nil {
						(*act)()
					}
				}
			case *core.ReservationEvent:
				if e.Op == core.OpCancel && e.Err == nil {
					w.cancels.Add(1)
				}
			}
		}})
		f(t, w)
	})
}

// A Gate that is closed ends every wait, and what a caller has reserved for later goes back.
func TestCloseEndsWaits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		algorithm core.Algorithm
		cancels   int64
	}{
		{"reserved for later", core.PerHour(1), 1},
		{"asks again", core.Calendar{Limit: 1, Every: core.PeriodYear, In: time.UTC}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachWatchedWait(t, func(t *testing.T, w *watchedWait) {
				p, key := limited(t, "p", tt.algorithm), newKey(t, "k")
				l := core.Must(core.NewLimiter(w.Gate, p))
				admits(t, w.Gate, core.Charge{Policy: p, Key: key})
				errs := make(chan error)
				go func() {
					d, err := l.Wait(context.Background(), key)
					if d.Allowed {
						t.Error(show(d))
					}
					errs <- err
				}()
				<-w.reserved
				worked(t, w.Close(t.Context()))
				if err := <-errs; !errors.Is(err, core.ErrClosed) {
					t.Errorf("Wait returns %v", err)
				}
				if n := w.cancels.Load(); n != tt.cancels {
					t.Errorf("%d reservations went back, want %d", n, tt.cancels)
				}
			})
		})
	}
}

// A caller whose key is blocked while it waits does not pass, and what it has reserved goes back.
func TestWaiterMeetsTheBlock(t *testing.T) {
	t.Parallel()
	eachWatchedWait(t, func(t *testing.T, w *watchedWait) {
		rate := limited(t, "rate", core.TokenBucket{Rate: 20, Per: time.Second, Burst: 1})
		ban := limited(t, "ban", core.Block{Strikes: 100, Within: time.Hour, For: time.Hour})
		key := newKey(t, "k")
		l := core.Must(core.NewLimiter(w.Gate, rate, ban))
		if d, err := l.Allow(t.Context(), key); err != nil || !d.Allowed {
			t.Fatal(show(d), err)
		}
		block := func() {
			worked(t, blocklist(t, w.Gate, ban).Block(t.Context(), key, time.Hour))
		}
		w.onWait.Store(&block)
		ctx, cancel := context.WithTimeout(t.Context(), longTimeout)
		defer cancel()
		d, err := l.Wait(ctx, key)
		if first := <-w.reserved; !first.Allowed {
			t.Error(show(first))
		}
		if !errors.Is(err, core.ErrDenied) || d.At(1).Allowed || d.RetryAfter() < time.Minute {
			t.Errorf("%v, %s", err, show(d))
		}
		if n := w.cancels.Load(); n != 1 {
			t.Errorf("%d reservations went back, want 1", n)
		}
	})
}

// The caller whose strike is the one that blocks its key passes, also if it has to wait for that.
func TestWaiterWithTheLastStrikePasses(t *testing.T) {
	t.Parallel()
	eachWatchedWait(t, func(t *testing.T, w *watchedWait) {
		rate := limited(t, "rate", core.TokenBucket{Rate: 20, Per: time.Second, Burst: 1})
		ban := limited(t, "ban", core.Block{Strikes: 2, Within: time.Hour, For: time.Hour})
		key := newKey(t, "k")
		l := core.Must(core.NewLimiter(w.Gate, rate, ban))
		if d, err := l.Allow(t.Context(), key); err != nil || !d.Allowed {
			t.Fatal(show(d), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), longTimeout)
		defer cancel()
		if d, err := l.Wait(ctx, key); err != nil || !d.Allowed {
			t.Errorf("%v, %s", err, show(d))
		}
		if d, err := l.Wait(ctx, key); !errors.Is(err, core.ErrDenied) || d.At(1).Allowed {
			t.Errorf("%v, %s", err, show(d))
		}
	})
}
