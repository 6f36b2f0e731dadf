package core_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// SpendUpTo, and a merged and clamped cost, are bounded by the limit with its raises, and a debt is not.
func TestBoundsHeedRaises(t *testing.T) {
	t.Parallel()
	eachQuota(t, func(t *testing.T, g *core.Gate, c *core.ManualClock, p *core.Policy, _ time.Duration) {
		raised := func(key string, cost int64) core.Charge {
			ch := core.Charge{Policy: p, Key: newKey(t, key), Cost: cost}
			raiseBy(t, g, ch, 90, c.Now().Add(time.Hour))
			return ch
		}
		one := raised("one", 1)
		n, d, err := g.SpendUpTo(t.Context(), 500, one)
		if err != nil || n != 100 || d.At(0).Used != 100 {
			t.Errorf("SpendUpTo: %d, %v: %s", n, err, show(d))
		}
		clamped := raised("clamped", 50)
		clamped.Clamp = true
		n, d, err = g.SpendUpTo(t.Context(), 500, clamped)
		if err != nil || n != 2 || d.At(0).Used != 100 {
			t.Errorf("SpendUpTo of a clamped cost: %d, %v: %s", n, err, show(d))
		}
		merged := raised("merged", 70)
		merged.Clamp = true
		if d := decide(t, g, merged, merged); !d.Allowed || d.At(0).Used != 100 {
			t.Errorf("merged: %s", show(d))
		}
		merged.Cost, merged.Key = 500, newKey(t, "no raise")
		if d := decide(t, g, merged, merged); !d.Allowed || d.At(0).Used != 10 {
			t.Errorf("merged without a raise: %s", show(d))
		}
		large := raised("large", 500)
		large.Clamp = true
		if d := decide(t, g, large); !d.Allowed || d.At(0).Used != 100 {
			t.Errorf("clamped: %s", show(d))
		}
		if d := decide(t, g, large); d.Allowed {
			t.Errorf("clamped, and nothing is left: %s", show(d))
		}
		debt := raised("debt", 50)
		settle(t, charge(t, g, debt), 170)
		if d := peek(t, g, debt); d.At(0).Used != 170 {
			t.Errorf("debt: %s", show(d))
		}
	})
}
