package core_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
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

// waitLimits are limits of every algorithm and how many units each has room for at once.
var waitLimits = []struct {
	algorithm core.Algorithm
	limit     int64
	span      time.Duration // the most time between two charges
	from      time.Time     // start of the history; the epoch if zero
}{
	{algorithm: core.PerSecond(10), limit: 10, span: time.Second},
	{algorithm: core.PerMinute(100), limit: 100, span: time.Minute},
	{algorithm: core.PerHour(7), limit: 7, span: time.Hour},
	{algorithm: core.TokenBucket{Rate: 7, Per: time.Second, Burst: 3}, limit: 3, span: time.Second},
	{algorithm: core.TokenBucket{Rate: 999_983, Per: 24 * time.Hour, Burst: 17}, limit: 17, span: time.Second},
	{algorithm: core.TokenBucket{Rate: 300_000, Per: time.Second, Burst: 5}, limit: 5, span: 20 * time.Microsecond},
	{algorithm: core.TokenBucket{Rate: 1_000_000, Per: time.Second, Burst: 1000}, limit: 1000, span: time.Millisecond},
	{algorithm: core.TokenBucket{Rate: 3, Per: 1001, Burst: 100_000}, limit: 100_000, span: 50 * time.Microsecond},
	{algorithm: core.TokenBucket{Rate: 1, Per: 30 * 24 * time.Hour, Burst: 2}, limit: 2, span: 24 * time.Hour},
	{algorithm: core.TokenBucket{Rate: 3, Per: 36524 * 24 * time.Hour, Burst: 3}, limit: 3, span: 24 * time.Hour},
	{algorithm: core.TokenBucket{Rate: 1<<42 - 1, Per: time.Hour, Burst: 1 << 42}, limit: 1 << 42, span: time.Hour},
	{algorithm: core.LeakyBucket{Rate: 7, Per: time.Second, Capacity: 9}, limit: 9, span: time.Second},
	{algorithm: core.FixedWindow{Limit: 10, Window: time.Minute}, limit: 10, span: 45 * time.Second},
	{algorithm: core.FixedWindow{Limit: 9, Window: 7 * time.Microsecond}, limit: 9, span: 9 * time.Microsecond},
	{algorithm: core.FixedWindow{Limit: 10, Window: time.Minute, FromFirst: true}, limit: 10, span: 45 * time.Second},
	{algorithm: core.SlidingWindow{Limit: 10, Window: time.Minute}, limit: 10, span: 45 * time.Second},
	{algorithm: core.SlidingWindow{Limit: 1, Window: time.Microsecond}, limit: 1, span: 2 * time.Microsecond},
	{algorithm: core.SlidingWindow{Limit: 1_000_000_007, Window: 7 * 24 * time.Hour}, limit: 1_000_000_007, span: 5 * 24 * time.Hour},
	{algorithm: core.SlidingWindow{Limit: 1_000_000_000, Window: 7 * 24 * time.Hour}, limit: 1_000_000_000, span: 5 * 24 * time.Hour},
	{algorithm: core.SlidingWindow{Limit: 10, Window: time.Minute, Buckets: 1}, limit: 10, span: 90 * time.Second},
	{algorithm: core.SlidingWindow{Limit: 10, Window: time.Minute, Buckets: 10}, limit: 10, span: 45 * time.Second},
	{algorithm: core.SlidingWindow{Limit: 1000, Window: time.Second, Buckets: 1000}, limit: 1000, span: 400 * time.Millisecond},
	{algorithm: core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Minute}}}, limit: 10, span: 30 * time.Second},
	{
		algorithm: core.SlidingLog{Windows: []core.Window{
			{Limit: 4, Width: time.Second}, {Limit: 10, Width: time.Minute}, {Limit: 30, Width: time.Hour},
		}},
		limit: 4, span: 20 * time.Second,
	},
	{algorithm: core.Calendar{Limit: 10, Every: core.PeriodMinute, In: time.UTC}, limit: 10, span: 45 * time.Second},
	{algorithm: core.Block{Strikes: 10, Within: time.Minute, For: time.Minute, Most: time.Hour}, limit: 10, span: 45 * time.Second},
	{
		algorithm: core.Calendar{Limit: 10, Every: core.PeriodHour, In: lordHowe}, limit: 10, span: 20 * time.Minute,
		// An hour before the clocks go back by half an hour.
		from: time.Date(2026, 4, 4, 13, 50, 0, 0, time.UTC),
	},
	{
		algorithm: core.Calendar{Limit: 10, Every: core.PeriodDay, In: lordHowe}, limit: 10, span: 12 * time.Hour,
		from: time.Date(2026, 10, 3, 2, 0, 0, 0, time.UTC), // a day before they go forward
	},
	{algorithm: core.Calendar{Limit: 10, Every: core.PeriodWeek, In: lordHowe}, limit: 10, span: 3 * 24 * time.Hour},
	{
		algorithm: core.Calendar{Limit: 10, Every: core.PeriodMonth, In: time.UTC, Anchor: time.Date(2024, 1, 31, 7, 0, 0, 0, time.UTC)},
		limit:     10, span: 15 * 24 * time.Hour,
	},
	{algorithm: core.Calendar{Limit: 10, Every: core.PeriodYear, In: lordHowe}, limit: 10, span: 60 * 24 * time.Hour},
}

// eachWaitLimit runs a random history on every limit and checks the waits after each step.
func eachWaitLimit(
	t *testing.T, n int, spend func(rng *rand.Rand, g *core.Gate, c *core.ManualClock, charge core.Charge) error,
) {
	t.Helper()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		rng := redistest.Rand(t)
		for i, w := range waitLimits {
			if c.Set(time.UnixMicro(epoch)); !w.from.IsZero() {
				c.Set(w.from)
			}
			charge := core.Charge{Policy: limited(t, fmt.Sprintf("p%d", i), w.algorithm), Key: newKey(t, "k"), Cost: core.NoCost}
			for range rounds(t, n) {
				charge.Cost = 1 + rng.Int64N(w.limit)
				if rng.IntN(3) > 0 {
					charge.Cost = 1 + rng.Int64N(min(3, w.limit))
				}
				if err := spend(rng, g, c, charge); err != nil {
					t.Fatalf("%T%+v, cost %d: %v", w.algorithm, w.algorithm, charge.Cost, err)
				}
				charge.Cost = 1 + rng.Int64N(w.limit)
				if rng.IntN(2) > 0 {
					charge.Cost = w.limit - rng.Int64N(min(w.limit, 3))
				}
				if err := checkWaits(t, g, c, func(int) core.Charge { return charge }); err != nil {
					t.Errorf("%T%+v, cost %d: %v", w.algorithm, w.algorithm, charge.Cost, err)
					break
				}
				c.Advance(time.Duration(rng.Int64N(w.span.Microseconds()+1)) * time.Microsecond)
			}
			charge.Cost = w.limit + 1 + rng.Int64N(math.MaxInt64-w.limit)
			d := peek(t, g, charge)
			_, blocks := w.algorithm.(core.Block) // which has no cost that never fits
			if !blocks && (d.RetryAfter() != core.Never || d.At(0).RetryAfter != core.Never) {
				t.Errorf("%T%+v, cost %d: %s", w.algorithm, w.algorithm, charge.Cost, show(d))
			}
		}
	})
}

// Every wait of a Result is exact to the microsecond: what it announces holds after exactly that
// long, and does not hold one microsecond earlier.
func TestWaitsAreExact(t *testing.T) {
	t.Parallel()
	eachWaitLimit(t, 16, func(rng *rand.Rand, g *core.Gate, c *core.ManualClock, charge core.Charge) error {
		d, err := g.Decide(t.Context(), charge)
		if wait := d.RetryAfter(); err == nil && wait > 0 && rng.IntN(4) == 0 && c.Now().Add(wait).Year() < 2050 {
			c.Advance(wait - time.Microsecond)
			if d := decide(t, g, charge); d.Allowed {
				return fmt.Errorf("the charge passes a microsecond before its wait of %v", wait)
			}
			c.Advance(time.Microsecond)
			if d := decide(t, g, charge); !d.Allowed {
				return fmt.Errorf("the charge does not pass after its wait of %v: %s", wait, show(d))
			}
		}
		return err
	})
}

// Waits are exact too if Settle charges more than there was room for.
func TestWaitsOfDebtsAreExact(t *testing.T) {
	t.Parallel()
	eachWaitLimit(t, 8, func(rng *rand.Rand, g *core.Gate, _ *core.ManualClock, charge core.Charge) error {
		r, d, err := g.Reserve(t.Context(), 0, charge)
		if err != nil || !d.Allowed {
			return err
		}
		return r.Settle(t.Context(), charge.Cost+rng.Int64N(charge.Cost+1))
	})
}

// checkWaits checks the waits of a charge and leaves the clock where it was. It looks ahead with the
// charges 1 to 6, which stand alike, because who looks ahead drops the raises that have ended then.
func checkWaits(t testing.TB, g *core.Gate, c *core.ManualClock, charge func(i int) core.Charge) error {
	start := c.Now()
	defer c.Set(start)
	d := peek(t, g, charge(0))
	found := d.At(0)
	if wait := d.RetryAfter(); wait != found.RetryAfter {
		return fmt.Errorf("RetryAfter is %v, and %v in the only result", wait, found.RetryAfter)
	}
	for i, w := range []struct {
		name  string
		wait  time.Duration
		due   bool // not to be 0
		holds func(core.Result) bool
	}{
		{"RetryAfter", found.RetryAfter, !found.Allowed, func(r core.Result) bool { return r.Allowed }},
		{"NextAfter", found.NextAfter, found.Used > 0, func(r core.Result) bool { return r.Remaining > found.Remaining }},
		{"ResetAfter", found.ResetAfter, found.Used > 0, func(r core.Result) bool { return r.ResetAfter == 0 }},
	} {
		at := []time.Duration{w.wait - time.Microsecond, w.wait}
		switch {
		case w.wait == 0 && w.due:
			return fmt.Errorf("%s is 0 in %s", w.name, show(d))
		case w.wait == 0:
			continue
		case w.wait == core.Never:
			at = nil
			first := start.Truncate(time.Minute).Add(time.Minute).Sub(start)
			for k := range 5 {
				at = append(at, first+time.Duration(k)*time.Minute)
			}
		case w.wait%time.Microsecond != 0:
			return fmt.Errorf("%s is %v", w.name, w.wait)
		}
		for j, wait := range at {
			c.Set(start.Add(wait))
			then := peek(t, g, charge(1+2*i+j%2))
			if want := w.wait != core.Never && j == 1; w.holds(then.At(0)) != want {
				return fmt.Errorf("%s is %v of %s\nafter %v: %s", w.name, w.wait, show(d), wait, show(then))
			}
		}
		c.Set(start)
	}
	return nil
}

// The delay of a Reservation is the longest of its charges, and so is the wait of a decision. Shadows
// cause none.
func TestDelayIsThatOfTheSlowestCharge(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		key := newKey(t, "k")
		charges := []core.Charge{
			{Policy: limited(t, "hour", core.PerHour(1)), Key: key, Cost: 1},
			{Policy: limited(t, "day", core.TokenBucket{Rate: 1, Per: 24 * time.Hour, Burst: 1}), Key: key, Cost: 1},
			{Policy: limited(t, "unlimited", core.Unlimited{}), Key: key, Cost: 1},
			{Policy: newPolicy(t, core.PolicyConfig{Name: "shadow", Algorithm: core.TokenBucket{Rate: 1, Per: 1000 * time.Hour, Burst: 1}, Shadow: true}), Key: key, Cost: 1},
		}
		if r, d := reserve(t, g, 0, charges...); r == nil || r.Delay() != 0 {
			t.Errorf("first reservation: %s", show(d))
		}
		r, d := reserve(t, g, 5000*time.Hour, charges...)
		if r == nil || d.At(0).Delay != time.Hour || d.At(1).Delay != 24*time.Hour {
			t.Fatal(show(d))
		}
		// Even the slowest machine gets here within an hour.
		if delay := r.Delay(); delay > 24*time.Hour || delay <= 23*time.Hour {
			t.Errorf("delay %v of %s", delay, show(d))
		}
		if d := decide(t, g, charges...); d.Allowed || d.RetryAfter() != 48*time.Hour {
			t.Errorf("want the wait of the day: %s", show(d))
		}
		charges[0].Cost = 2
		if d := decide(t, g, charges...); d.Allowed || d.RetryAfter() != core.Never {
			t.Errorf("a charge never fits: %s", show(d))
		}
	})
}

// history is one random history on several keys, all of which stand alike after it.
type history struct {
	*testing.T
	g        *core.Gate
	c        *core.ManualClock
	rng      *rand.Rand
	policy   *core.Policy
	raisable bool
	keys     []core.Key
	held     [][]*core.Reservation // of each key
	n        int                   // steps so far
}

func newHistory(
	t *testing.T, g *core.Gate, c *core.ManualClock, rng *rand.Rand, cfg core.PolicyConfig, keys int,
) *history {
	h := &history{T: t, g: g, c: c, rng: rng, raisable: cfg.Raisable}
	h.policy = newPolicy(t, cfg)
	for i := range keys {
		h.keys = append(h.keys, newKey(t, "k", cfg.Name, fmt.Sprint(i, " ", rng.Uint64())))
	}
	h.held = make([][]*core.Reservation, keys)
	return h
}

// charge returns a charge on key i.
func (h *history) charge(i int, cost int64) core.Charge {
	return core.Charge{Policy: h.policy, Key: h.keys[i], Cost: cost}
}

// step does one thing on every key: it raises the limit, corrects what is used, or charges, settles,
// cancels and abandons.
func (h *history) step() {
	h.n++
	cost, actual, op := 1+h.rng.Int64N(4), h.rng.Int64N(9), h.rng.IntN(9)
	pick := h.rng.IntN(8)
	ends := h.c.Now().Add(time.Duration(1+h.rng.Int64N(200_000_000)) * time.Microsecond)
	raise := core.Adjustment{
		ID: fmt.Sprint(h.n), Policy: h.policy, Units: h.rng.Int64N(7) - 3, Raise: 1 + h.rng.Int64N(5), Until: ends,
	}
	for i := range h.keys {
		held := h.held[i]
		switch {
		case op < 2 && h.raisable:
			raise.Key = h.keys[i]
			adjust(h, h.g, raise)
		case op < 4 && pick < len(held):
			settle(h, held[pick], actual)
			h.held[i] = slices.Delete(held, pick, pick+1)
		case op < 5 && pick < len(held):
			cancel(h, held[pick])
			h.held[i] = slices.Delete(held, pick, pick+1)
		default:
			r, _, err := h.g.Charge(h.Context(), h.charge(i, cost))
			noError(h, err)
			if r != nil {
				r.Abandon() // a hold runs out by the clock of the test
				h.held[i] = append(held, r)
			}
		}
	}
}

func (h *history) move(most time.Duration) {
	h.c.Advance(time.Duration(h.rng.Int64N(most.Microseconds()+1)) * time.Microsecond)
}

// Waits are exact while raises end, debts are owed and refunds pay some of them.
func TestWaitsOfRaisesAreExact(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		rng := redistest.Rand(t)
		for _, cfg := range []core.PolicyConfig{
			{Name: "window", Raisable: true, Algorithm: core.FixedWindow{Limit: 5, Window: time.Minute}},
			{Name: "minutes", Raisable: true, Algorithm: core.Calendar{Limit: 5, Every: core.PeriodMinute, In: time.UTC}},
			{Name: "frozen", Raisable: true, Algorithm: frozen(5)},
		} {
			for range rounds(t, 120) {
				c.Set(time.UnixMicro(epoch))
				h := newHistory(t, g, c, rng, cfg, 7)
				for range 1 + rng.IntN(12) {
					h.step()
					h.move(15 * time.Second)
				}
				cost := 1 + rng.Int64N(9)
				if err := checkWaits(t, g, c, func(i int) core.Charge { return h.charge(i, cost) }); err != nil {
					t.Fatalf("%s: %v", cfg.Name, err)
				}
			}
		}
	})
}

// A hold that has expired has gone, whether or not somebody asked in between.
func TestAskingChangesNothing(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		rng := redistest.Rand(t)
		for i, a := range []core.Algorithm{
			core.FixedWindow{Limit: 5, Window: time.Minute},
			core.FixedWindow{Limit: 5, Window: time.Minute, FromFirst: true},
			core.Calendar{Limit: 5, Every: core.PeriodMinute, In: time.UTC},
			core.SlidingWindow{Limit: 5, Window: time.Minute},
			core.SlidingWindow{Limit: 5, Window: time.Minute, Buckets: 6},
			core.SlidingLog{Windows: []core.Window{{Limit: 5, Width: time.Minute}}},
			core.PerMinute(5), core.TokenBucket{Rate: 7, Per: time.Minute, Burst: 5},
			core.LeakyBucket{Rate: 5, Per: time.Minute, Capacity: 5}, frozen(5),
		} {
			_, shared := a.(core.Calendar)
			fixed, ok := a.(core.FixedWindow)
			cfg := core.PolicyConfig{Name: fmt.Sprint("p", i), Algorithm: a, Hold: 20 * time.Second}
			cfg.Raisable = shared || ok && !fixed.FromFirst
			for range rounds(t, 80) {
				c.Set(time.UnixMicro(epoch))
				h := newHistory(t, g, c, rng, cfg, 2)
				for range 1 + rng.IntN(10) {
					h.step()
					for range rng.IntN(4) {
						h.move(20 * time.Second)
						peek(t, g, h.charge(1, 1))
					}
				}
				one, other := show(peek(t, g, h.charge(0, 1))), show(peek(t, g, h.charge(1, 1)))
				if one != other {
					t.Fatalf("%T%+v\nnobody asked: %s\nsomebody did: %s", a, a, one, other)
				}
			}
		}
	})
}
