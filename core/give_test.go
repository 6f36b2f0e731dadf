package core_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/hub"
)

// giveBack is hub.Give.
func giveBack(t *testing.T, g *core.Gate, c core.Charge, units int64) (given int64, err error) {
	t.Helper()
	return hub.Give.(func(*core.Gate, context.Context, core.Charge, int64) (int64, error))(g, t.Context(), c, units)
}

// What is given back is bounded by what is used alone, which raises and debts bring above the limit.
func TestGiveReturnsAllThatIsUsed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		limit core.Algorithm
		raise int64
		debt  bool
	}{
		{"raised calendar", core.Calendar{Limit: 100, Every: core.PeriodYear, In: time.UTC}, 100, false},
		{"raised window", core.FixedWindow{Limit: 100, Window: 24 * time.Hour}, 100, false},
		{"raised bucket", frozen(100), 100, false},
		{"indebted calendar", core.Calendar{Limit: 100, Every: core.PeriodYear, In: time.UTC}, 0, true},
		{"indebted window", core.FixedWindow{Limit: 100, Window: 24 * time.Hour, FromFirst: true}, 0, true},
		{"indebted bucket", core.PerHour(100), 0, true},
		{"indebted bucket without refill", frozen(100), 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
				p := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: tt.limit, Raisable: tt.raise > 0})
				asked := core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 100}
				if tt.raise > 0 {
					raiseBy(t, g, asked, tt.raise, c.Now().Add(time.Hour))
				}
				if tt.debt {
					settle(t, charge(t, g, asked), 200)
				} else {
					decide(t, g, asked)
					decide(t, g, asked)
				}
				asked.Cost = core.NoCost
				for i, used := range []int64{50, 0} {
					given, err := giveBack(t, g, asked, 150)
					if d := peek(t, g, asked); err != nil || given != 150-int64(i)*100 || d.At(0).Used != used {
						t.Errorf("gave %d, %v: %s", given, err, show(d))
					}
				}
			})
		})
	}
}

// Only Adjust knows up to which debt a quota may be charged.
func TestGiveChargesNoQuota(t *testing.T) {
	t.Parallel()
	g := memoryGate(t, core.Config{})
	for _, tt := range []struct {
		name    string
		limit   core.Algorithm
		charged int64
		err     error
	}{
		{"bucket", core.PerHour(100), -150, nil},
		{"quota", frozen(100), 0, core.ErrCharge},
	} {
		asked := core.Charge{Policy: limited(t, tt.name, tt.limit), Key: newKey(t, "k"), Cost: core.NoCost}
		if given, err := giveBack(t, g, asked, -150); given != tt.charged || !errors.Is(err, tt.err) {
			t.Errorf("%s: %d, %v", tt.name, given, err)
		}
	}
}
