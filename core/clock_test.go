package core_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// A clock that is put forward and back again locks no key for longer than its limit would, and what
// a denial says of the wait stays true.
func TestClockForwardAndBack(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate, c *manualClock) {
		charge := core.Charge{Policy: limited(t, "p", core.PerMinute(10)), Key: newKey(t, "k"), Cost: 10}
		c.advance(time.Hour)
		decide(t, g, charge)
		c.advance(-time.Hour)
		charge.Cost = 1
		d := decide(t, g, charge)
		wait := d.RetryAfter()
		if d.Allowed || wait != 6*time.Second {
			t.Fatalf("back again: %s", show(d))
		}
		c.advance(wait)
		if d := decide(t, g, charge); !d.Allowed {
			t.Errorf("after the wait: %s", show(d))
		}
	})
}

// Where the clock goes back, what was spent stays spent.
func TestClockBack(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate, c *manualClock) {
		charge := core.Charge{Policy: limited(t, "p", core.PerMinute(10)), Key: newKey(t, "k"), Cost: 4}
		decide(t, g, charge)
		for _, back := range []time.Duration{time.Microsecond, time.Second, 3 * time.Second, time.Minute, 2 * time.Hour} {
			c.advance(-back)
			d := peek(t, g, charge)
			if r := d.At(0); r.Remaining > 6 {
				t.Errorf("%v back: %s", back, show(d))
			}
		}
		c.advance(2*time.Hour + time.Minute)
		if d := peek(t, g, charge); !d.Allowed {
			t.Errorf("forward again: %s", show(d))
		}
	})
}

// At the start of 1970, where a clock for tests stands at first, every algorithm counts and gives
// back.
func TestZeroClock(t *testing.T) {
	for _, l := range append(tens, []struct {
		name      string
		algorithm core.Algorithm
	}{{"one small window", core.SlidingWindow{Limit: 10, Window: time.Hour, Buckets: 1}}}...) {
		t.Run(l.name, func(t *testing.T) {
			g := memoryGate(t, core.Config{Clock: new(core.ManualClock)})
			policy, key := limited(t, "p", l.algorithm), newKey(t, "k")
			held, d := reserve(t, g, 0, core.Charge{Policy: policy, Key: key, Cost: 4})
			if r := d.At(0); r.Used != 4 || r.Remaining != 6 {
				t.Error(show(d))
			}
			cancel(t, held)
			if n := used(t, g, policy, key); n != 0 {
				t.Errorf("cancelled, and %d used", n)
			}
		})
	}
}
