package core_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// A charge is not refunded from the debt of the window that follows its own, also where another
// width made the window last longer for a while.
func TestRefundLeavesTheDebtOfAnotherWindow(t *testing.T) {
	t.Parallel()
	short := core.FixedWindow{Limit: 30, Window: time.Second}
	long := core.FixedWindow{Limit: 30, Window: 2 * time.Second}
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		p := newPolicy(t, core.PolicyConfig{Name: "alternating", Algorithm: short})
		k := newKey(t, "a")
		c.Advance(4*time.Second - time.Duration(c.Now().UnixNano())%(2*time.Second))
		early, _ := reserve(t, g, 0, core.Charge{Policy: p, Key: k, Cost: 9})
		c.Advance(500 * time.Millisecond)
		late, _ := reserve(t, g, 0, core.Charge{Policy: p, Key: k, Cost: 21, Limit: long})
		if err := late.Settle(t.Context(), 31); err != nil { // a debt of 10
			t.Fatal(err)
		}
		c.Advance(700 * time.Millisecond)
		if err := early.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		d := peek(t, g, core.Charge{Policy: p, Key: k})
		if used := d.At(0).Used; used != 10 {
			t.Errorf("%d units are used, want the debt of 10", used)
		}
	})
}
