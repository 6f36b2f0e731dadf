package core_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// limitsOfAMinute are limits of every algorithm with a window of a minute.
func limitsOfAMinute(limit int64) map[string]core.Algorithm {
	return map[string]core.Algorithm{
		"fixed":      core.FixedWindow{Limit: limit, Window: time.Minute},
		"from first": core.FixedWindow{Limit: limit, Window: time.Minute, FromFirst: true},
		"calendar":   core.Calendar{Limit: limit, Every: core.PeriodMinute, In: time.UTC},
		"counters":   core.SlidingWindow{Limit: limit, Window: time.Minute},
		"buckets":    core.SlidingWindow{Limit: limit, Window: time.Minute, Buckets: 6},
		"log":        core.SlidingLog{Windows: []core.Window{{Limit: limit, Width: time.Minute}}},
		"bucket":     core.PerMinute(limit),
	}
}

// A refund of charges whose window is over gives the next window nothing.
func TestLateRefundGivesTheNextWindowNothing(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for name, a := range limitsOfAMinute(3) {
			if name == "counters" || name == "bucket" {
				continue // charges of the window before still count, in part
			}
			c.Set(time.UnixMicro(epoch))
			one := core.Charge{Policy: limited(t, "p", a), Key: newKey(t, "k", name), Cost: 1}
			var held []*core.Reservation
			for range 3 {
				held = append(held, charge(t, g, one))
			}
			c.Advance(85 * time.Second)
			charge(t, g, one)
			for _, r := range held {
				cancel(t, r)
			}
			if n := used(t, g, one.Policy, one.Key); n != 1 {
				t.Errorf("%s: %d are used after late refunds, want 1", name, n)
			}
		}
	})
}

// Overload does not extend a denial: each minute admits its 100 of 150.
func TestSteadyOverloadIsAdmittedInPart(t *testing.T) {
	t.Parallel()
	c := newClock()
	g := memoryGate(t, core.Config{Clock: c.Now})
	for name, a := range limitsOfAMinute(100) {
		if name == "buckets" {
			continue // a charge counts for up to seven buckets of the six
		}
		c.Set(time.UnixMicro(epoch).Truncate(time.Minute))
		one := core.Charge{Policy: limited(t, "p", a), Key: newKey(t, "k", name), Cost: 1}
		total := 0
		for minute := range 4 {
			n := 0
			for range 150 {
				if d := decide(t, g, one); d.Allowed {
					n++
				}
				c.Advance(400 * time.Millisecond)
			}
			if total += n; n < 95 {
				t.Errorf("%s: minute %d admits %d of 150", name, minute, n)
			}
		}
		most := 400
		if name == "bucket" {
			most += 100 // its burst, once
		}
		if total > most {
			t.Errorf("%s: four minutes admit %d", name, total)
		}
	}
}
