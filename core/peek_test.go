package core_test

import (
	"testing"

	"github.com/headgate/headgate/core"
)

func TestPeekTellsUsage(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		key := newKey(t, "acme")
		api, free, none := limited(t, "api", frozen(10)), limited(t, "free", core.Unlimited{}), limited(t, "none", core.DenyAll{})
		plan := limited(t, "plan", frozen(3))
		decide(t, g, core.Charge{Policy: api, Key: key, Cost: 4}, core.Charge{Policy: plan, Key: key, Cost: 3})
		decide(t, g, core.Charge{Policy: plan, Key: key, Cost: 1}) // is denied
		for range 2 {
			d, err := g.Peek(t.Context(), ask(key, api, free, none, plan)...)
			if err != nil || d.Len() != 4 {
				t.Fatalf("%v, %s", err, show(d))
			}
			for i, want := range []struct {
				known                  bool
				limit, used, remaining int64
			}{{true, 10, 4, 6}, {false, 0, 0, 0}, {true, 0, 0, 0}, {true, 3, 3, 0}} {
				if r := d.At(i); r.Known != want.known || r.Limit != want.limit || r.Used != want.used || r.Remaining != want.remaining {
					t.Errorf("result %d, want %v: %s", i, want, show(d))
				}
			}
		}
		if d := peek(t, g, ask(newKey(t, "other"), api)...); d.At(0).Used != 0 {
			t.Errorf("another key: %s", show(d))
		}
	})
}

// ask returns charges that only ask how a key stands under policies.
func ask(key core.Key, policies ...*core.Policy) (charges []core.Charge) {
	for _, p := range policies {
		charges = append(charges, core.Charge{Policy: p, Key: key, Cost: core.NoCost})
	}
	return charges
}
