package core_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// A Result is a value, so that its methods can be called on what At returns.
func TestViolatesTellsTheWindowsThatDeny(t *testing.T) {
	g := memoryGate(t, core.Config{})
	log := core.SlidingLog{Windows: []core.Window{
		{Limit: 1, Width: time.Hour}, {Limit: 5, Width: 24 * time.Hour},
	}}
	c := core.Charge{Policy: limited(t, "p", log), Key: newKey(t, "k"), Cost: 1}
	if d := decide(t, g, c); d.At(0).Violates(0) || d.At(0).Violates(1) {
		t.Errorf("an admitted charge violates a window: %s", show(d))
	}
	if d := decide(t, g, c); !d.At(0).Violates(0) || d.At(0).Violates(1) {
		t.Errorf("want the window of an hour alone to deny: %s", show(d))
	}
}

// A window denies nothing if a longer one has no larger limit.
func TestShorterWindowWithoutSmallerLimit(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		c := core.Charge{Key: newKey(t, "k"), Policy: limited(t, "p", core.SlidingLog{Windows: []core.Window{
			{Limit: 5, Width: time.Second}, {Limit: 2, Width: time.Hour},
		}})}
		decide(t, g, c)
		decide(t, g, c)
		d := decide(t, g, c)
		if r := d.At(0); d.Allowed || r.Violates(0) || !r.Violates(1) || r.Remaining != 0 || r.Limit != 2 {
			t.Error(show(d))
		}
	})
}
