package inspect_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/inspect"
)

// A verdict heeds a limit that has room now, and none once its raise has ended.
func TestVerdictHeedsRaisesThatEnd(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		key := newKey(t, "k")
		budget, err := core.NewPolicy(core.PolicyConfig{
			Name: "budget", Raisable: true, Algorithm: core.TokenBucket{Burst: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		hour := limited(t, "hour", core.PerHour(1))
		i := newInspector(t, inspect.Config{Gate: g, Policies: []*core.Policy{budget, hour}})
		gatetest.Must(i.Raise(t.Context(), budget, key, 1, c.Now().Add(30*time.Minute), "top-up"))(t)
		decide(t, g, core.Charge{Policy: budget, Key: key}, core.Charge{Policy: hour, Key: key})
		if w := lookup(t, i, key).Why; len(w.Reasons) != 1 || w.RetryAfter != core.Never || !w.Opens.IsZero() {
			t.Errorf("%d reasons, %v, %v", len(w.Reasons), w.RetryAfter, w.Opens)
		}
	})
}
