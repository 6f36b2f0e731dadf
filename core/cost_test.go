package core_test

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
)

// A Charge without a Cost costs 1 whatever decides on it, and one of NoCost nothing.
func TestCostZeroMeansOne(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		p, q := limited(t, "p", frozen(4)), limited(t, "q", frozen(4))
		key := newKey(t, "k")
		one, none := core.Charge{Policy: p, Key: key}, core.Charge{Policy: q, Key: key, Cost: core.NoCost}
		for i, spend := range []func() (core.Decision, error){
			func() (core.Decision, error) { return g.Decide(t.Context(), one, none) },
			func() (core.Decision, error) {
				_, d, err := g.Charge(t.Context(), one, none)
				return d, err
			},
			func() (core.Decision, error) {
				_, d, err := g.Reserve(t.Context(), 0, one, none)
				return d, err
			},
			func() (core.Decision, error) {
				_, d, err := g.SpendUpTo(t.Context(), 1, one, none)
				return d, err
			},
		} {
			if d := peek(t, g, one); !d.Allowed || d.At(0).Used != int64(i) {
				t.Errorf("before %d: %s", i, show(d))
			}
			d, err := spend()
			if err != nil || !d.Allowed || d.At(0).Used != int64(i+1) || d.At(1).Used != 0 {
				t.Errorf("%d: %s, %v", i, show(d), err)
			}
		}
		if d := peek(t, g, one); d.Allowed {
			t.Errorf("a fifth unit fits: %s", show(d))
		}
		if d := peek(t, g, core.Charge{Policy: p, Key: key, Cost: core.NoCost}); !d.Allowed {
			t.Errorf("nothing does not fit: %s", show(d))
		}
	})
}

// AllowN counts as AllowN of golang.org/x/time/rate does: 0 units are nothing.
func TestLimiterSpendsNothingForZero(t *testing.T) {
	g := memoryGate(t, core.Config{})
	l := gatetest.Must(core.NewLimiter(g, limited(t, "p", core.PerHour(1))))(t)
	key := newKey(t, "k")
	for range 2 {
		if d, err := l.AllowN(t.Context(), key, 0); err != nil || !d.Allowed || d.At(0).Used != 0 {
			t.Errorf("AllowN of 0: %s, %v", show(d), err)
		}
	}
	for _, n := range []int64{-1, -2} {
		if _, err := l.AllowN(t.Context(), key, n); !errors.Is(err, core.ErrCharge) {
			t.Errorf("AllowN of %d: %v", n, err)
		}
		if _, _, err := l.Reserve(t.Context(), time.Hour, key, n); !errors.Is(err, core.ErrCharge) {
			t.Errorf("Reserve of %d: %v", n, err)
		}
		if _, err := l.WaitN(t.Context(), key, n); !errors.Is(err, core.ErrCharge) {
			t.Errorf("WaitN of %d: %v", n, err)
		}
	}
}
