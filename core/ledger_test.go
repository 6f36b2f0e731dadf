package core_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/redistest"
)

var errGone = errors.New("gone")

// ledger is a user's database.
type ledger struct {
	used  atomic.Int64
	calls atomic.Int64
	spans sync.Map // of the calls
	fails atomic.Pointer[error]
	act   atomic.Pointer[func()] // in a call
	gate  chan struct{}          // if not nil, a call waits for it
}

func (l *ledger) ask(ctx context.Context, _ core.Key, period core.Span) (int64, error) {
	l.calls.Add(1)
	l.spans.Store(period, true)
	if l.gate != nil {
		select {
		case <-l.gate:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	if act := l.act.Load(); act != nil {
		(*act)()
	}
	if err := l.fails.Load(); err != nil {
		return 0, *err
	}
	return l.used.Load(), nil
}

func (l *ledger) policy(t testing.TB, a core.Algorithm, mode core.FailureMode) *core.Policy {
	t.Helper()
	return newPolicy(t, core.PolicyConfig{Name: "budget", Algorithm: a, Ledger: l.ask, OnFailure: mode})
}

func TestLedgerSeedsEachPeriodOnce(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for _, q := range quotasOfTen {
			t.Run(q.name, func(t *testing.T) {
				c.Set(time.UnixMicro(epoch))
				l := new(ledger)
				l.used.Store(7)
				p, key := l.policy(t, q.algorithm, core.FailClosed), newKey(t, "k", t.Name())
				charge := core.Charge{Policy: p, Key: key, Cost: 2}
				for _, want := range []int64{9, 9} { // the second is denied
					decide(t, g, charge)
					if n := used(t, g, p, key); n != want || l.calls.Load() != 1 {
						t.Errorf("%d units in use after %d calls, want %d after 1", n, l.calls.Load(), want)
					}
				}
				if q.next == 0 {
					return
				}
				l.used.Store(1)
				c.Advance(q.next)
				if d := peek(t, g, charge); d.At(0).Used != 1 || l.calls.Load() != 2 {
					t.Errorf("%d calls, %s", l.calls.Load(), show(d))
				}
				l.spans.Range(func(s, _ any) bool {
					if s := s.(core.Span); s.Until.Sub(s.From) < 24*time.Hour {
						t.Error(s)
					}
					return true
				})
			})
		}
	})
}

// Callers of two processes that see a key for the first time ask its ledger once in each process,
// and all see its figure. So they do when Redis has lost its data.
func TestLedgerIsAskedOnceInAProcess(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		l := new(ledger)
		l.used.Store(90)
		p := l.policy(t, core.Calendar{Limit: 100, Every: core.PeriodYear, In: time.UTC}, core.FailClosed)
		var gates []*core.Gate
		for range 2 {
			gates = append(gates, redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, DisableDenialCache: true}))
		}
		for round := range int64(3) {
			var wg sync.WaitGroup
			var allowed atomic.Int64
			for _, g := range gates {
				for range 8 {
					wg.Go(func() {
						d, err := g.Decide(t.Context(), core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 1})
						if err != nil || d.Cause != nil {
							t.Error(err, d.Cause)
						}
						if d.Allowed {
							allowed.Add(1)
						}
					})
				}
			}
			wg.Wait()
			if n := used(t, gates[0], p, newKey(t, "k")); n != 100 || allowed.Load() != 10 || l.calls.Load() < round+1 || l.calls.Load() > 2*(round+1) {
				t.Errorf("round %d: %d units in use, %d allowed, %d calls", round, n, allowed.Load(), l.calls.Load())
			}
			noError(t, s.Client(t).FlushDB(t.Context()).Err())
		}
	})
}

// A correction of a key that Redis does not know is one of the ledger's figure.
func TestAdjustAsksLedgerFirst(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for _, q := range quotasOfTen {
			t.Run(q.name, func(t *testing.T) {
				c.Set(time.UnixMicro(epoch))
				l := new(ledger)
				l.used.Store(7)
				p, key := l.policy(t, q.algorithm, core.FailClosed), newKey(t, "k", t.Name())
				adjust(t, g, core.Adjustment{ID: "a", Policy: p, Key: key, Units: -3})
				if n := used(t, g, p, key); n != 4 || l.calls.Load() != 1 {
					t.Errorf("%d units in use after %d calls, want 4 after 1", n, l.calls.Load())
				}
				l.fails.Store(&errGone)
				a := core.Adjustment{ID: "a", Policy: p, Key: newKey(t, "other", t.Name()), Units: -3}
				if done, err := g.Adjust(t.Context(), a); done || !errors.Is(err, core.ErrLedger) {
					t.Error(done, err)
				}
			})
		}
	})
}

// A ledger may apply the raises of the key again.
func TestLedgerRaises(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		var p *core.Policy
		p = newPolicy(t, core.PolicyConfig{
			Name: "budget", Algorithm: frozen(10), Raisable: true, OnFailure: core.FailClosed,
			Ledger: func(ctx context.Context, key core.Key, _ core.Span) (int64, error) {
				_, err := g.Adjust(ctx, core.Adjustment{ID: "a", Policy: p, Key: key, Raise: 20, Until: c.Now().Add(time.Hour)})
				return 12, err
			},
		})
		d := decide(t, g, core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 18})
		if r := d.At(0); !d.Allowed || r.Limit != 30 || r.Used != 30 {
			t.Error(show(d))
		}
	})
}

// A ledger may apply raises that were lost with the data. The decision that asked it is clamped to them.
func TestClampHeedsRaisesOfTheLedger(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for used, fits := range map[int64]bool{500: true, 501: false} {
			var p *core.Policy
			p = newPolicy(t, core.PolicyConfig{
				Name: "budget", Algorithm: frozen(100), Raisable: true, OnFailure: core.FailClosed,
				Ledger: func(ctx context.Context, key core.Key, _ core.Span) (int64, error) {
					_, err := g.Adjust(ctx, core.Adjustment{ID: "a", Policy: p, Key: key, Raise: 900, Until: c.Now().Add(time.Hour)})
					return used, err
				},
			})
			charge := core.Charge{Policy: p, Key: newKey(t, "k", strconv.FormatInt(used, 10)), Cost: 500, Clamp: true}
			want := used
			if fits {
				want += charge.Cost
			}
			if d := decide(t, g, charge); d.Allowed != fits || d.At(0).Used != want || d.At(0).Limit != 1000 {
				t.Errorf("%d are used: %s", used, show(d))
			}
		}
	})
}

// A process asks a ledger that has failed again after a second, however it failed.
func TestLedgerIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(ledger)
		g := memoryGate(t, core.Config{})
		charge := core.Charge{Policy: l.policy(t, frozen(10), core.FailClosed), Key: newKey(t, "k")}
		for i, fail := range []func(){
			func() { l.fails.Store(&errGone) }, // for the next call, too
			func() {},
			func() {
				l.fails.Store(nil)
				l.used.Store(-1)
			},
			func() { panic("no ledger") },
			runtime.Goexit, // as t.Fatal does
		} {
			l.act.Store(&fail)
			for range 2 {
				began := time.Now()
				d, err := g.Decide(t.Context(), charge)
				if err != nil || d.Allowed || !errors.Is(d.Cause, core.ErrLedger) || l.calls.Load() != int64(i+1) {
					t.Error(i, l.calls.Load(), show(d), err)
				}
				if i == 3 && !strings.Contains(d.Cause.Error(), "no ledger") || time.Since(began) > 0 {
					t.Errorf("failure %d after %v: %v", i, time.Since(began), d.Cause)
				}
				time.Sleep(time.Second - time.Nanosecond)
			}
		}
		l.act.Store(nil)
		l.used.Store(4)
		if d := decide(t, g, charge); !d.Allowed || d.At(0).Used != 5 || l.calls.Load() != 6 {
			t.Error(l.calls.Load(), show(d))
		}
	})
}

// Keys whose ledger hangs delay other keys for a Config.Timeout, and other policies not.
func TestHangingLedgersDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs, quick := &ledger{gate: make(chan struct{})}, new(ledger)
		g := memoryGate(t, core.Config{Timeout: shortTimeout})
		p := newPolicy(t, core.PolicyConfig{
			Name: "budget", Algorithm: frozen(10), OnFailure: core.FailClosed,
			Ledger: func(ctx context.Context, key core.Key, period core.Span) (int64, error) {
				if strings.HasPrefix(key.Parts()[0], "hangs") {
					return hangs.ask(ctx, key, period)
				}
				return quick.ask(ctx, key, period)
			},
		})
		var wg sync.WaitGroup
		for i := range 40 { // more than ask at once
			wg.Go(func() {
				d, err := g.Decide(t.Context(), core.Charge{Policy: p, Key: newKey(t, "hangs"+strconv.Itoa(i))})
				if err != nil || d.Allowed || !errors.Is(d.Cause, core.ErrLedger) {
					t.Error(show(d), err)
				}
			})
		}
		synctest.Wait()
		other := core.Charge{Policy: quick.policy(t, frozen(10), core.FailClosed), Key: newKey(t, "other")}
		admits(t, g, other)
		wg.Wait()
		admits(t, g, core.Charge{Policy: p, Key: newKey(t, "honest")})
		worked(t, g.Close(t.Context()))
	})
}

// A process asks for a figure, and another one seeds the key meanwhile and corrects it. The late
// figure does not undo the correction.
func TestLateFigureUndoesNoCorrection(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		late, quick := &ledger{gate: make(chan struct{})}, new(ledger)
		late.used.Store(7)
		quick.used.Store(7)
		other := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, Timeout: busyTimeout})
		g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
		key, p := newKey(t, "k"), quick.policy(t, frozen(10), core.FailClosed)
		done := make(chan struct{})
		go func() {
			defer close(done)
			c := core.Charge{Policy: late.policy(t, frozen(10), core.FailClosed), Key: key}
			_, _ = other.Decide(t.Context(), c) // waits for the figure, or gives up
		}()
		eventually(t, "the other process asks", func() bool { return late.calls.Load() == 1 })
		adjust(t, g, core.Adjustment{ID: "a", Policy: p, Key: key, Units: -3})
		close(late.gate)
		<-done
		other.AwaitTasks()
		if n := used(t, g, p, key); n != 4 && n != 5 { // the other decision may have been admitted
			t.Errorf("%d units in use, want 4 or 5", n)
		}
	})
}

// A decision on several hash slots asks their ledgers side by side, and waits for all of them for one
// Config.Timeout.
func TestLedgersOfOneDecisionShareItsDeadline(t *testing.T) {
	const calls = 4
	both := make(chan struct{})
	var asked atomic.Int64
	var charges []core.Charge
	for i := range calls {
		p := newPolicy(t, core.PolicyConfig{
			Name: "budget" + strconv.Itoa(i), Algorithm: frozen(10), OnFailure: core.FailClosed,
			Ledger: func(ctx context.Context, _ core.Key, _ core.Span) (int64, error) {
				if asked.Add(1) == calls {
					close(both)
				}
				select {
				case <-both:
					return 1, nil
				case <-ctx.Done():
					return 0, ctx.Err()
				}
			},
		})
		charges = append(charges, core.Charge{Policy: p, Key: newKey(t, "k"+strconv.Itoa(i)), Cost: 1})
	}
	g := memoryGate(t, core.Config{Timeout: longTimeout})
	g.SplitByOutermost()
	admits(t, g, charges...)
}

// Without a figure, the failure mode decides on the policy that needs it, and the store on all else.
func TestLedgerFailsAlone(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for _, test := range []struct {
			name   string
			mode   core.FailureMode
			shadow bool
			cost   int64
			source core.Source
			allows int64 // calls
		}{
			{"open", core.FailOpen, false, 1, core.SourceOpen, 2},
			{"closed", core.FailClosed, false, 1, core.SourceClosed, 0},
			{"closed shadow", core.FailClosed, true, 1, core.SourceOpen, 2},
			{"local", core.FailLocal, false, 1, core.SourceLocal, 2},
			{"local, above the share", core.FailLocal, false, 11, core.SourceLocal, 0},
		} {
			for _, hold := range []time.Duration{0, time.Hour} {
				t.Run(test.name+hold.String(), func(t *testing.T) {
					l, key := new(ledger), newKey(t, "k", t.Name())
					l.fails.Store(&errGone)
					p := newPolicy(t, core.PolicyConfig{Name: "budget", Algorithm: frozen(10), Ledger: l.ask, OnFailure: test.mode, Shadow: test.shadow})
					other := newPolicy(t, core.PolicyConfig{Name: "other", Algorithm: frozen(2), OnFailure: core.FailClosed, Hold: hold})
					works := new(ledger)
					works.used.Store(8)
					counted := newPolicy(t, core.PolicyConfig{Name: "counted", Algorithm: frozen(10), Ledger: works.ask, OnFailure: core.FailClosed})
					all := []core.Charge{{Policy: p, Key: key, Cost: test.cost}, {Policy: other, Key: key, Cost: 1}, {Policy: counted, Key: key, Cost: 1}}
					allowed := int64(0)
					for range 3 {
						c.Advance(time.Second)
						_, d, err := g.Charge(t.Context(), all...)
						redis := peek(t, g, all[1]).Source
						if err != nil || !errors.Is(d.Cause, core.ErrLedger) || d.At(0).Source != test.source || d.At(1).Source != redis || d.At(2).Source != redis {
							t.Error(show(d), err)
						}
						if d.Allowed {
							allowed++
						}
					}
					if n := used(t, g, other, key); n != test.allows || allowed != n {
						t.Errorf("%d allowed and %d in use, want %d", allowed, n, test.allows)
					}
					wantUsed(t, g, counted, key, 8+test.allows)
				})
			}
		}
	})
}

// Without a figure, the semaphore of an Admit takes its slot from Redis all the same.
func TestLedgerFailsAndSlotsAreCounted(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		l, key, granted := new(ledger), newKey(t, "k"), 0
		l.fails.Store(&errGone)
		for i := range 6 {
			g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
			charges := []core.Charge{
				{Policy: l.policy(t, frozen(10), core.FailOpen), Key: key, Cost: 1},
				{Policy: limited(t, "other", frozen(10)), Key: key, Cost: 1},
			}
			lease, d, err := newSemaphore(t, g, semaphore.Config{TTL: time.Hour}).Admit(
				t.Context(), semaphore.Request{Caps: []semaphore.Cap{{Key: key, Limit: 1}}}, charges[:1+i%2]...)
			if lease != nil {
				granted++
			} else if !errors.Is(err, semaphore.ErrFull) {
				t.Error(show(d), err)
			}
		}
		if n := used(t, redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix}), limited(t, "other", frozen(10)), key); granted != 1 || n != 0 {
			t.Errorf("%d slots of 1 were granted, and %d units are in use", granted, n)
		}
	})
}

// A decision does not wait for a slow ledger for longer than its deadline. The figure counts when it
// comes.
func TestSlowLedgerIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		told := make(chan core.KeyEvent, 10)
		g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, Timeout: 500 * time.Millisecond, Observe: func(_ context.Context, e core.Event) {
			if isOp(e, core.OpLedger) {
				told <- *e.(*core.KeyEvent)
			}
		}})
		l := &ledger{gate: make(chan struct{})}
		l.used.Store(3)
		p, key := l.policy(t, frozen(10), core.FailClosed), newKey(t, "k")
		charge := core.Charge{Policy: p, Key: key, Cost: 1}
		var asked sync.WaitGroup
		for range 2 {
			asked.Go(func() {
				d, err := g.Decide(t.Context(), charge)
				if err != nil || d.Allowed || !errors.Is(d.Cause, core.ErrLedger) || d.RetryAfter() != time.Second {
					t.Error(show(d), err)
				}
			})
		}
		asked.Wait()
		close(l.gate)
		if t.Failed() {
			return // the ledger may not have been asked
		}
		if e := <-told; e.Err != nil || e.Policy != p {
			t.Error(e.Err)
		}
		if d, err := g.Decide(t.Context(), charge); err != nil || !d.Allowed || d.At(0).Used != 4 || l.calls.Load() != 1 {
			t.Error(l.calls.Load(), show(d), err)
		}
	})
}

// When a period ends while the ledger is asked, the decision asks it again for the new one.
func TestPeriodEndsDuringLedger(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		calls := int64(0)
		p := newPolicy(t, core.PolicyConfig{
			Name: "budget", Algorithm: core.Calendar{Limit: 10, Every: core.PeriodMonth, In: time.UTC}, OnFailure: core.FailClosed,
			Ledger: func(context.Context, core.Key, core.Span) (int64, error) {
				if calls++; calls == 1 {
					c.Advance(31 * 24 * time.Hour)
					return 9, nil
				}
				return 1, nil
			},
		})
		d := decide(t, g, core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 5})
		if !d.Allowed || d.At(0).Used != 6 || calls != 2 {
			t.Errorf("%d calls: %s", calls, show(d))
		}
	})
}
