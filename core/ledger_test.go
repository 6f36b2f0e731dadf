package core_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

var errGone = errors.New("gone")

// ledger is a user's database.
type ledger struct {
	used  atomic.Int64
	calls atomic.Int64
	spans sync.Map // of the calls
	fails atomic.Pointer[error]
	gate  chan struct{} // if not nil, a call waits for it
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
	eachGate(t, func(t *testing.T, g *core.Gate, c *manualClock) {
		for _, q := range quotasOfTen {
			t.Run(q.name, func(t *testing.T) {
				c.micros.Store(epoch)
				l := new(ledger)
				l.used.Store(7)
				p, key := l.policy(t, q.algorithm, core.Closed), newKey(t, "k", t.Name())
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
				c.advance(q.next)
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

// Callers of two processes that see a key for the first time ask its ledger once, and all see its
// figure. So they do when Redis has lost its data.
func TestLedgerIsAskedByOneCaller(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		l := new(ledger)
		l.used.Store(90)
		p := l.policy(t, core.Calendar{Limit: 100, Every: core.Year, In: time.UTC}, core.Closed)
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
			if n := used(t, gates[0], p, newKey(t, "k")); n != 100 || allowed.Load() != 10 || l.calls.Load() != round+1 {
				t.Errorf("round %d: %d units in use, %d allowed, %d calls", round, n, allowed.Load(), l.calls.Load())
			}
			if err := s.Client(t).FlushDB(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// While a ledger fails, the failure mode decides and no process asks it more than once a second.
func TestLedgerFails(t *testing.T) {
	tests := []struct {
		name    string
		fail    func(l *ledger)
		mode    core.FailureMode
		source  core.Source
		allowed bool
	}{
		{"closed", func(l *ledger) { l.fails.Store(&errGone) }, core.Closed, core.SourceClosed, false},
		{"open", func(l *ledger) { l.fails.Store(&errGone) }, core.Open, core.SourceOpen, true},
		{"local", func(l *ledger) { l.fails.Store(&errGone) }, core.Local, core.SourceLocal, true},
		{"a negative figure", func(l *ledger) { l.used.Store(-1) }, core.Closed, core.SourceClosed, false},
	}
	eachGate(t, func(t *testing.T, g *core.Gate, c *manualClock) {
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				l := new(ledger)
				test.fail(l)
				p, key := l.policy(t, frozen(10), test.mode), newKey(t, "k", t.Name())
				charge := core.Charge{Policy: p, Key: key, Cost: 1}
				d, err := g.Decide(t.Context(), charge)
				if err != nil || !errors.Is(d.Cause, core.ErrLedger) || d.Source != test.source || d.Allowed != test.allowed {
					t.Error(show(d), err)
				}
				l.fails.Store(nil)
				l.used.Store(4)
				c.advance(time.Second)
				if d := decide(t, g, charge); !d.Allowed || d.At(0).Used != 5 || l.calls.Load() != 2 {
					t.Error(l.calls.Load(), show(d))
				}
			})
		}
	})
}

// A decision does not wait for a slow ledger for longer than its deadline. The figure counts when it
// comes.
func TestSlowLedgerIsNotWaitedFor(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		told := make(chan core.Event, 10)
		g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, Timeout: shortTimeout, Observe: func(_ context.Context, e core.Event) {
			if e.Kind == core.EventLedger {
				told <- e
			}
		}})
		l := &ledger{gate: make(chan struct{})}
		l.used.Store(3)
		p, key := l.policy(t, frozen(10), core.Closed), newKey(t, "k")
		charge := core.Charge{Policy: p, Key: key, Cost: 1}
		for range 2 {
			d, err := g.Decide(t.Context(), charge)
			if err != nil || d.Allowed || !errors.Is(d.Cause, core.ErrLedger) || d.RetryAfter() != time.Second {
				t.Error(show(d), err)
			}
		}
		close(l.gate)
		if e := <-told; e.Err != nil || e.Policy != p {
			t.Error(e.Err)
		}
		if d, err := g.Decide(t.Context(), charge); err != nil || !d.Allowed || d.At(0).Used != 4 || l.calls.Load() != 1 {
			t.Error(l.calls.Load(), show(d), err)
		}
	})
}

// The panic of a ledger is an error, and ends no process.
func TestLedgerPanics(t *testing.T) {
	p := newPolicy(t, core.PolicyConfig{
		Name: "budget", Algorithm: frozen(10), OnFailure: core.Closed,
		Ledger: func(context.Context, core.Key, core.Span) (int64, error) { panic("no ledger") },
	})
	g := memoryGate(t, core.Config{})
	d, err := g.Decide(t.Context(), core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 1})
	if err != nil || d.Allowed || !strings.Contains(d.Cause.Error(), "no ledger") {
		t.Error(show(d), err)
	}
}

func TestQuotaFieldsAreValidated(t *testing.T) {
	for _, test := range []struct {
		name string
		cfg  core.PolicyConfig
		err  string
	}{
		{"a rate that is raisable", core.PolicyConfig{Algorithm: core.PerSecond(1), Raisable: true}, "PolicyConfig.Raisable"},
		{"a log with a ledger", core.PolicyConfig{
			Algorithm: core.SlidingLog{Windows: []core.Window{{Limit: 1, Width: time.Hour}}}, Ledger: spentIn,
		}, "PolicyConfig.Ledger"},
		{"the limit of each key, which For says", core.PolicyConfig{Algorithm: core.Unlimited{}, Ledger: spentIn, Raisable: true}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.cfg.Name = "p"
			_, err := core.NewPolicy(test.cfg)
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Error(err)
			}
		})
	}
}
