package core_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// within returns a context of background work that ends after that time, or never for 0.
func within(t *testing.T, patience time.Duration) context.Context {
	t.Helper()
	ctx := core.WithBackground(t.Context())
	if patience == 0 {
		return ctx
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	t.Cleanup(cancel)
	return ctx
}

// Beside 60 background callers with and without a deadline, a foreground caller waits for the next
// token. The background callers pass in order, one at each of the other tokens, and reserve nothing.
func TestForegroundPassesBackground(t *testing.T) {
	const crowd = 60
	tests := []struct {
		name      string
		algorithm core.Algorithm
		spent     int64
		every     time.Duration
	}{
		{"token bucket", core.PerSecond(10), 10, 100 * time.Millisecond},
		{"token bucket with fractional microseconds", core.TokenBucket{Rate: 3, Per: time.Second, Burst: 2}, 2, 333_334 * time.Microsecond},
		{"leaky bucket", core.LeakyBucket{Rate: 4, Per: time.Second, Capacity: 100}, 1, 250 * time.Millisecond},
		{"fixed window", core.FixedWindow{Limit: 1, Window: time.Second}, 1, time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, tt.algorithm, func(t *testing.T, w *waiter) {
				w.spend(tt.spent)
				served := make(chan int, crowd)
				for i := range crowd {
					go func() {
						if w.waits(within(t, time.Hour*time.Duration(i%2)), 1) < 0 {
							t.Errorf("%d was denied", i)
						}
						served <- i
					}()
					synctest.Wait()
				}
				if used := w.used(); used > tt.spent {
					t.Errorf("%d used, background callers have reserved", used)
				}
				for range 5 {
					time.Sleep(3 * tt.every / 2)
					if waited := w.waits(t.Context(), 1); waited > 2*tt.every {
						t.Errorf("a foreground caller waited %v, a token takes %v", waited, tt.every)
					}
				}
				for want := range crowd {
					gatetest.Equal(t, <-served, want, "is served")
				}
				ideal := time.Duration(crowd+5) * tt.every
				if took := time.Since(w.start); took > ideal*103/100 {
					t.Errorf("all took %v, want %v", took, ideal)
				}
			})
		})
	}
}

// At three times the load that a limit admits, all of it foreground, background work is served within
// its patience, and only in its second half.
func TestBackgroundDoesNotStarve(t *testing.T) {
	inBubble(t, core.PerSecond(10), func(t *testing.T, w *waiter) {
		w.spend(10)
		done, refused := make(chan struct{}), 0
		var foreground sync.WaitGroup
		foreground.Go(func() {
			for tick := time.NewTicker(time.Second / 30); ; <-tick.C {
				r, _, err := w.Reserve(t.Context(), 2*time.Second, w.charge.Key, 1)
				worked(t, err)
				if r == nil {
					refused++
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
		time.Sleep(2 * time.Second) // in a bubble: the foreground has used all by now
		served := make(chan time.Duration, 20)
		for range cap(served) {
			go func() { served <- w.waits(within(t, 20*time.Second), 1) }()
		}
		for range cap(served) {
			if waited := <-served; waited < 10*time.Second || waited > 20*time.Second {
				t.Errorf("waited %v of a patience of 20 s", waited)
			}
		}
		close(done)
		foreground.Wait()
		if refused < 200 {
			t.Errorf("%d of the foreground were refused", refused)
		}
	})
}

// Only the first caller of a process asks when there is room.
func TestBackgroundAsksOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asks atomic.Int64
		g := memoryGate(t, core.Config{Observe: func(_ context.Context, e core.Event) {
			if isOp(e, core.OpReserve) {
				asks.Add(1)
			}
		}})
		l := core.Must(core.NewLimiter(g, limited(t, "p", core.TokenBucket{Rate: 1, Per: time.Second, Burst: 1})))
		done := make(chan error)
		for range 50 {
			go func() {
				_, err := l.Wait(within(t, 0), newKey(t, "k"))
				done <- err
			}()
			synctest.Wait()
		}
		for range 50 {
			worked(t, <-done)
		}
		if n := asks.Load(); n > 100 { // one that is denied and one that passes
			t.Errorf("%d questions of 50 callers", n)
		}
	})
}

// What ends the wait of a background caller ends it in the line too, and the next one moves up.
func TestBackgroundLeavesTheLine(t *testing.T) {
	inBubble(t, core.TokenBucket{Rate: 1, Per: time.Second, Burst: 1}, func(t *testing.T, w *waiter) {
		w.spend(1)
		errs := make([]chan error, 4)
		cancels := make([]context.CancelFunc, 4)
		for i := range errs {
			ctx, cancel := context.WithCancel(within(t, 0))
			errs[i], cancels[i] = make(chan error, 1), cancel
			defer cancel()
			go func() {
				_, err := w.Wait(ctx, w.charge.Key)
				errs[i] <- err
			}()
			synctest.Wait()
		}
		cancels[0]() // the head
		cancels[2]()
		for _, i := range []int{0, 2} {
			gatetest.Is(t, <-errs[i], context.Canceled, "%d", i)
		}
		worked(t, <-errs[1])
		gatetest.Equal(t, time.Since(w.start), time.Second, "the second one waited")
		worked(t, w.gate.Close(t.Context()))
		gatetest.Is(t, <-errs[3], core.ErrClosed, "got")
	})
}

// Reserve of background work waits for room itself, and otherwise ends as that of foreground work.
func TestBackgroundReserve(t *testing.T) {
	bucket := core.TokenBucket{Rate: 1, Per: time.Second, Burst: 1}
	tests := []struct {
		name        string
		algorithm   core.Algorithm
		shadow      bool
		spent       int64 // by reservations for later
		patience    time.Duration
		took, delay time.Duration
		denied      bool
	}{
		{"room in the first half", bucket, false, 1, 3 * time.Second, time.Second, 0, false},
		{"room in the second half", bucket, false, 4, 6 * time.Second, 3 * time.Second, time.Second, false},
		{"no room", bucket, false, 8, 6 * time.Second, 0, 0, true},
		{"a window", core.FixedWindow{Limit: 1, Window: time.Second}, false, 1, time.Minute, 0, 0, true},
		{"a shadow", bucket, true, 4, time.Minute, 0, 0, false},
		{"no patience", bucket, false, 1, 0, 0, 0, true},
		{"all the patience in the world", bucket, false, 30, core.Never, 30 * time.Second, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, key := memoryGate(t, core.Config{}), newKey(t, "k")
				p := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: tt.algorithm, Shadow: tt.shadow})
				for range tt.spent {
					gatetest.Must(reserved(g.Reserve(t.Context(), time.Hour, core.Charge{Policy: p, Key: key})))(t)
				}
				start := time.Now()
				r, d, err := g.Reserve(within(t, 0), tt.patience, core.Charge{Policy: p, Key: key})
				worked(t, err)
				took := time.Since(start)
				if took != tt.took || r.Delay() != tt.delay || d.Allowed == tt.denied {
					t.Errorf("after %v a delay of %v, want %v and %v; %s", took, r.Delay(), tt.took, tt.delay, show(d))
				}
			})
		})
	}
}

func reserved(r *core.Reservation, _ core.Decision, err error) (*core.Reservation, error) {
	return r, err
}

// A Limiter of a bucket and a window waits for both, whichever has room first.
func TestBackgroundWaitsForAllPolicies(t *testing.T) {
	inBubble(t, core.TokenBucket{Rate: 1, Per: 45 * time.Second, Burst: 1}, func(t *testing.T, w *waiter) {
		window := limited(t, "window", core.FixedWindow{Limit: 1, Window: time.Minute})
		for _, policies := range [][]*core.Policy{{w.charge.Policy, window}, {window, w.charge.Policy}} {
			both := &waiter{gatetest.Must(core.NewLimiter(w.gate, policies...))(t), t, w.gate, w.charge, time.Now()}
			var after []time.Duration
			for range 3 {
				both.waits(within(t, time.Hour), 1)
				after = append(after, time.Since(both.start).Truncate(time.Second))
			}
			if want := []time.Duration{0, time.Minute, 2 * time.Minute}; !slices.Equal(after, want) {
				t.Errorf("passed after %v, want %v", after, want)
			}
			time.Sleep(time.Minute) // in a bubble: the window is over
		}
	})
}

// Background callers whose Redis dies while they wait are decided on by the mode of the policy.
func TestBackgroundWaitsThroughAnOutage(t *testing.T) {
	t.Parallel()
	for mode, passes := range map[core.FailureMode]bool{core.FailLocal: true, core.FailOpen: true, core.FailClosed: false} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			var asks sync.WaitGroup
			asks.Add(1)
			first := sync.OnceFunc(asks.Done)
			g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, Observe: func(_ context.Context, e core.Event) {
				if isOp(e, core.OpReserve) {
					first()
				}
			}})
			p := newPolicy(t, core.PolicyConfig{
				Name: "p", OnFailure: mode, Algorithm: core.TokenBucket{Rate: 1, Per: time.Second, Burst: 3},
			})
			l, key := core.Must(core.NewLimiter(g, p)), newKey(t, "k")
			gatetest.Must(l.AllowN(t.Context(), key, 3))(t)
			ctx := within(t, 4*time.Second)
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					d, err := l.Wait(ctx, key)
					if d.Allowed != passes || d.Cause == nil || (err == nil) != passes {
						t.Errorf("%v, %s", err, show(d))
					}
				})
			}
			asks.Wait()
			s.Kill()
			all.Wait()
		})
	}
}
