package core_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// No window of the width admits more than n, and n are back at most one step of it later.
func TestAnyWindow(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		limit core.Algorithm
		width time.Duration
		step  time.Duration
	}{
		"second": {core.AnySecond(10), time.Second, 20 * time.Millisecond},
		"minute": {core.AnyMinute(10), time.Minute, time.Second},
		"hour":   {core.AnyHour(10), time.Hour, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
				charge := core.Charge{Policy: limited(t, "p", tt.limit), Key: newKey(t, "k"), Cost: 1}
				admitted := func() (n int) {
					for decide(t, g, charge).Allowed {
						n++
					}
					return n
				}
				if n := admitted(); n != 10 {
					t.Errorf("%d at once, want 10", n)
				}
				c.Advance(tt.width - time.Microsecond)
				if n := admitted(); n != 0 {
					t.Errorf("%d more within the window", n)
				}
				c.Advance(time.Microsecond + tt.step)
				if n := admitted(); n != 10 {
					t.Errorf("%d after the window, want 10", n)
				}
			})
		})
	}
}

// An untouched log waits for nothing, also where a short window admits less than the longest.
func TestUntouchedLogHasNoWait(t *testing.T) {
	t.Parallel()
	log := limited(t, "log", core.SlidingLog{Windows: []core.Window{
		{Limit: 3, Width: time.Second}, {Limit: 10, Width: time.Hour},
	}})
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		d := peek(t, g, core.Charge{Policy: log, Key: newKey(t, "k")})
		r := d.At(0)
		if r.Remaining != 3 || r.NextAfter != 0 || r.ResetAfter != 0 {
			t.Errorf("%d remain, next after %v, reset after %v", r.Remaining, r.NextAfter, r.ResetAfter)
		}
	})
}
