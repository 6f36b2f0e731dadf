package core_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// A cost is clamped to the limit with its raises, so that a raised limit admits what fits it.
func TestClampHeedsRaises(t *testing.T) {
	t.Parallel()
	for name, quota := range map[string]core.Algorithm{
		"calendar": core.Calendar{Limit: 100, Every: core.PeriodMonth, In: time.UTC},
		"window":   core.FixedWindow{Limit: 100, Window: 24 * time.Hour},
		"bucket":   core.TokenBucket{Burst: 100},
	} {
		t.Run(name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
				p := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: quota, Raisable: true})
				charge := core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 500, Clamp: true}
				other := charge
				other.Key = newKey(t, "other")
				_, err := g.Adjust(t.Context(), core.Adjustment{
					ID: "top-up", Policy: p, Key: charge.Key, Raise: 900, Until: c.Now().Add(time.Hour),
				})
				if err != nil {
					t.Fatal(err)
				}
				for i, used := range []int64{500, 1000, 1000} {
					d := decide(t, g, charge)
					if r := d.At(0); d.Allowed != (i < 2) || r.Used != used {
						t.Errorf("charge %d: %s", i, show(d))
					}
				}
				// Charges of one key are clamped together, and a key without a raise to the limit.
				twice := []core.Charge{other, other}
				if d := decide(t, g, twice...); !d.Allowed || d.At(0).Used != 100 {
					t.Error(show(d))
				}
				c.Advance(time.Hour)
				charge.Key = newKey(t, "late")
				if d := decide(t, g, charge); !d.Allowed || d.At(0).Used != 100 {
					t.Error(show(d))
				}
			})
		})
	}
}
