package core_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
)

// waiter is a Limiter on a Gate with the bubble's clock, and a charge on its key.
type waiter struct {
	*core.Limiter
	*testing.T
	gate   *core.Gate
	charge core.Charge
	start  time.Time
}

// inBubble runs f on a limiter of the algorithm in a synctest bubble. It fails the test if Wait
// leaves a goroutine behind.
func inBubble(t *testing.T, a core.Algorithm, f func(t *testing.T, w *waiter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := memoryGate(t, core.Config{})
		p := limited(t, "p", a)
		l := gatetest.Must(core.NewLimiter(g, p))(t)
		f(t, &waiter{l, t, g, core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 1}, time.Now()})
	})
}

// spend spends n now.
func (w *waiter) spend(n int64) {
	w.Helper()
	if d, err := w.AllowN(w.Context(), w.charge.Key, n); err != nil || !d.Allowed {
		w.Fatal(err, show(d))
	}
}

// waits returns how long WaitN waited for n, or -1 if it denied.
func (w *waiter) waits(ctx context.Context, n int64) time.Duration {
	start := time.Now()
	d, err := w.WaitN(ctx, w.charge.Key, n)
	if (err != nil) == d.Allowed || err != nil && !errors.Is(err, core.ErrDenied) {
		w.Error(err)
	}
	if !d.Allowed {
		gatetest.Equal(w, time.Since(start), 0, "denied after")
		return -1
	}
	return time.Since(start)
}

func (w *waiter) used() int64 {
	w.Helper()
	d := peek(w, w.gate, w.charge)
	return d.At(0).Used
}

func (w *waiter) hasUsed(want int64) {
	w.Helper()
	gatetest.Equal(w, w.used(), want, "used")
}

// queue starts goroutines that wait for n each, one after the other. It returns when each of them
// passed, and in which order.
func (w *waiter) queue(waiters int, n int64) (after []time.Duration, order []int) {
	type turn struct {
		waiter int
		after  time.Duration
	}
	turns := make(chan turn, waiters)
	for i := range waiters {
		go func() {
			if w.waits(w.Context(), n) < 0 {
				w.Errorf("waiter %d was denied", i)
			}
			turns <- turn{i, time.Since(w.start)}
		}()
		synctest.Wait()
	}
	for range waiters {
		t := <-turns
		after, order = append(after, t.after), append(order, t.waiter)
	}
	return after, order
}

// Each algorithm has room for 10, which is spent at the start of the bubble: midnight UTC on
// January 1st.
func TestWaitsAsLongAsNeeded(t *testing.T) {
	tests := []struct {
		name      string
		algorithm core.Algorithm
		n         int64
		want      time.Duration
	}{
		{"token bucket", core.PerSecond(10), 1, 100 * time.Millisecond},
		{"token bucket, more", core.PerSecond(10), 7, 700 * time.Millisecond},
		{"token bucket with fractional microseconds", core.TokenBucket{Rate: 3, Per: time.Second, Burst: 10}, 1, 333_334 * time.Microsecond},
		{"token bucket with fractional microseconds, more", core.TokenBucket{Rate: 3, Per: time.Second, Burst: 10}, 3, time.Second},
		{"fixed window", core.FixedWindow{Limit: 10, Window: time.Minute}, 1, time.Minute},
		{"window from first", core.FixedWindow{Limit: 10, Window: time.Minute, FromFirst: true}, 10, time.Minute},
		{"log", core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Minute}}}, 3, time.Minute},
		{"log of two windows", core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Minute}, {Limit: 11, Width: time.Hour}}}, 1, time.Minute},
		{"log of two windows, more", core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Minute}, {Limit: 11, Width: time.Hour}}}, 2, time.Hour},
		{"two counters", core.SlidingWindow{Limit: 10, Window: time.Minute}, 1, 66 * time.Second},
		{"two counters, more", core.SlidingWindow{Limit: 10, Window: time.Minute}, 10, 2 * time.Minute},
		{"buckets", core.SlidingWindow{Limit: 10, Window: time.Minute, Buckets: 6}, 1, 70 * time.Second},
		{"calendar hour", core.Calendar{Limit: 10, Every: core.PeriodHour, In: time.UTC}, 1, time.Hour},
		{"calendar year", core.Calendar{Limit: 10, Every: core.PeriodYear, In: time.UTC}, 1, 366 * 24 * time.Hour},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, tt.algorithm, func(t *testing.T, w *waiter) {
				gatetest.Equal(t, w.waits(w.Context(), 10), 0, "waited for units that were there")
				late, cancel := context.WithTimeout(w.Context(), tt.want-time.Microsecond)
				defer cancel()
				gatetest.Equal(t, w.waits(late, tt.n), -1, "waited, with %v to the deadline", tt.want-time.Microsecond)
				w.hasUsed(10)
				enough, cancel := context.WithTimeout(w.Context(), tt.want+time.Microsecond)
				defer cancel()
				gatetest.Equal(t, w.waits(enough, tt.n), tt.want, "waited")
			})
		})
	}
}

func TestWaitersPassInOrder(t *testing.T) {
	tests := []struct {
		name         string
		algorithm    core.Algorithm
		spent, n     int64
		first, every time.Duration
	}{
		{"token bucket", core.TokenBucket{Rate: 4, Per: time.Second, Burst: 4}, 4, 1, 250 * time.Millisecond, 250 * time.Millisecond},
		// The queue lets the next one leave when the first 4 have leaked.
		{"leaky bucket", core.LeakyBucket{Rate: 4, Per: time.Second, Capacity: 24}, 4, 1, time.Second, 250 * time.Millisecond},
		{"leaky bucket, costs of 2", core.LeakyBucket{Rate: 10, Per: time.Second, Capacity: 40}, 0, 2, 0, 200 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, tt.algorithm, func(t *testing.T, w *waiter) {
				w.spend(tt.spent)
				after, order := w.queue(20, tt.n)
				for i := range after {
					if want := tt.first + time.Duration(i)*tt.every; order[i] != i || after[i] != want {
						t.Errorf("position %d: waiter %d after %v, want %v", i, order[i], after[i], want)
					}
				}
			})
		})
	}
}

func TestFullLeakyQueueDeniesAtOnce(t *testing.T) {
	inBubble(t, core.LeakyBucket{Rate: 1, Per: time.Second, Capacity: 3}, func(t *testing.T, w *waiter) {
		done := make(chan time.Duration, 3)
		for range 3 {
			go func() { done <- w.waits(w.Context(), 1) }()
			synctest.Wait()
		}
		gatetest.Equal(t, w.waits(w.Context(), 1), -1, "waited in a full queue")
		w.hasUsed(3)
		time.Sleep(time.Second)
		gatetest.Equal(t, w.waits(w.Context(), 1), 2*time.Second, "waited for the room that a departure left")
		for i := range 3 {
			gatetest.Equal(t, <-done, time.Duration(i)*time.Second, "waiter %d after", i)
		}
	})
}

func TestWaitDeniesAtOnceWhatNeverFits(t *testing.T) {
	for _, tt := range limitsOfTen {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, tt.algorithm, func(t *testing.T, w *waiter) {
				gatetest.Equal(t, w.waits(w.Context(), 12), -1, "waited for more than the limit")
				w.hasUsed(0)
				w.spend(10)
				late, cancel := context.WithTimeout(w.Context(), time.Minute)
				defer cancel()
				if d, err := w.Wait(late, w.charge.Key); !errors.Is(err, core.ErrDenied) || d.Allowed ||
					errors.Is(err, context.DeadlineExceeded) != (tt.name != "frozen") || !time.Now().Equal(w.start) {
					t.Errorf("beyond the deadline: %v, %s", err, show(d))
				}
				w.hasUsed(10)
			})
		})
	}
	inBubble(t, core.DenyAll{}, func(t *testing.T, w *waiter) {
		gatetest.Equal(t, w.waits(w.Context(), 1), -1, "waited for a policy that denies all")
	})
	inBubble(t, frozen(1), func(t *testing.T, w *waiter) {
		w.spend(1)
		gatetest.Equal(t, w.waits(w.Context(), 1), -1, "waited for a bucket that does not refill")
	})
}

// A caller that stops waiting gets its reservation refunded, so that others need not wait for it.
func TestCancelledWaitRefunds(t *testing.T) {
	cause := errors.New("cause")
	for _, tt := range limitsOfTen {
		cost := int64(2)
		switch tt.name {
		case "frozen":
			continue // waiting does not help
		case "leaky bucket":
			cost = 1 // a charge that exceeds the queue does not wait
		}
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, tt.algorithm, func(t *testing.T, w *waiter) {
				w.spend(9)
				ctx, cancel := context.WithCancelCause(w.Context())
				defer cancel(nil)
				errs := make(chan error)
				go func() {
					d, err := w.WaitN(ctx, w.charge.Key, cost)
					if d.Allowed {
						w.Error(show(d))
					}
					errs <- err
				}()
				synctest.Wait()
				time.Sleep(time.Second)
				cancel(cause)
				if err := <-errs; !errors.Is(err, context.Canceled) {
					t.Errorf("%v, want one of %v", err, context.Canceled)
				}
				gatetest.Equal(t, time.Since(w.start), time.Second, "after")
				w.hasUsed(9)
				w.spend(1)
			})
		})
	}
}

func TestWaitOfEndedContext(t *testing.T) {
	for _, tt := range limitsOfTen {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, tt.algorithm, func(t *testing.T, w *waiter) {
				cancelled, cancel := context.WithCancel(w.Context())
				cancel()
				late, cancel := context.WithDeadline(w.Context(), w.start.Add(-time.Hour))
				defer cancel()
				for want, ctx := range map[error]context.Context{context.Canceled: cancelled, context.DeadlineExceeded: late} {
					if d, err := w.Wait(ctx, w.charge.Key); !errors.Is(err, want) || d.Allowed {
						t.Errorf("%v, want %v; %s", err, want, show(d))
					}
				}
				w.hasUsed(0)
			})
		})
	}
}

// Other callers may be first when a window restarts. All of them get through, and never more than
// the limit in one window.
func TestWaitersForWindows(t *testing.T) {
	tests := []struct {
		name      string
		algorithm core.Algorithm
	}{
		{"fixed window", core.FixedWindow{Limit: 3, Window: time.Minute}},
		{"window from first", core.FixedWindow{Limit: 3, Window: time.Minute, FromFirst: true}},
		{"log", core.SlidingLog{Windows: []core.Window{{Limit: 3, Width: time.Minute}}}},
		{"calendar", core.Calendar{Limit: 3, Every: core.PeriodMinute, In: time.UTC}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, tt.algorithm, func(t *testing.T, w *waiter) {
				after, _ := w.queue(10, 1)
				for i, at := range after {
					gatetest.Equal(t, at, (time.Duration(i/3) * time.Minute), "position %d after", i)
				}
			})
		})
	}
}

// A limiter of two policies waits for the slower one, and spends nothing of the other in the
// meantime if that one cannot wait.
func TestWaitForSlowestPolicy(t *testing.T) {
	for _, limit := range []core.Algorithm{core.PerMinute(10), core.FixedWindow{Limit: 10, Window: time.Minute}} {
		t.Run(fmt.Sprintf("%T", limit), func(t *testing.T) {
			inBubble(t, core.PerSecond(10), func(t *testing.T, w *waiter) {
				slow := limited(t, "slow", limit)
				l := gatetest.Must(core.NewLimiter(w.gate, w.charge.Policy, slow))(t)
				both := &waiter{l, t, w.gate, w.charge, w.start}
				both.spend(10)
				want := 6 * time.Second
				if _, window := limit.(core.FixedWindow); window {
					want = time.Minute
				}
				gatetest.Equal(t, both.waits(t.Context(), 1), want, "waited")
			})
		})
	}
}

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
				gatetest.Is(t, <-errs, core.ErrClosed, "Wait returns")
				gatetest.Equal(t, w.cancels.Load(), tt.cancels, "reservations went back")
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
		gatetest.Equal(t, w.cancels.Load(), 1, "reservations went back")
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
