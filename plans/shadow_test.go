package plans_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/plans"
)

const shadowed = `
default: plain
plans:
  old: {limits: {api: {rate: 0, burst: 3}}, shadow: new}
  new: {limits: {api: {rate: 0, burst: 2}}}
  generous: {limits: {api: {rate: 0, burst: 1}}, shadow: more}
  more: {limits: {api: {rate: 0, burst: 2}}}
  plain: {limits: {api: {rate: 0, burst: 1}}}
  silent: {limits: {api: {rate: 0, burst: 1}}, shadow: empty}
  empty: {}
  open: {limits: {api: {rate: 0, burst: 1}}, shadow: unlimited}
  unlimited: {limits: {api: unlimited}}
`

// A shadow plan denies nothing, and each charge that it decides differently is reported.
func TestShadowPlan(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		var events seen
		p := newPlans(t, plans.Config{Set: parse(t, shadowed), Observe: events.observe, Resolve: func(_ context.Context, tenant string) (string, error) {
			if tenant == "plain" {
				return "", nil
			}
			return tenant, nil
		}})
		decisions := 0
		gate, err := core.NewRedis(s.Client(t), core.Config{
			Prefix: s.Prefix, Timeout: time.Minute,
			Observe: p.Observe(func(_ context.Context, e core.Event) {
				if e, ok := e.(*core.DecisionEvent); ok && e.Op == core.OpDecide {
					decisions++
				}
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = gate.Close(context.Background()) }()
		policy, err := core.NewPolicy(core.PolicyConfig{
			Name: "api", Algorithm: core.TokenBucket{Burst: 2}, For: p.For("api"), Hold: time.Hour, Unit: core.UnitTokens,
		})
		if err != nil {
			t.Fatal(err)
		}
		shadow, err := p.Shadow(policy)
		if err != nil || shadow.Name() != "api-shadow" || shadow.Hold() != time.Hour || shadow.Unit() != core.UnitTokens {
			t.Fatal(shadow, err)
		}
		for tenant, want := range map[string]struct {
			allowed   int
			plan      string
			disagrees []int // calls, from 1, of which the shadow disagrees
		}{
			"old":      {3, "new", []int{3}},     // the shadow would deny the third
			"generous": {1, "more", []int{2, 3}}, // the shadow would allow it: it is denied, so it never spends its own
			"plain":    {1, "", nil},
			"open":     {1, "unlimited", []int{2, 3}},
			"silent":   {1, "empty", []int{2, 3}}, // the shadow plan has the policy's own limit
		} {
			t.Run(tenant, func(t *testing.T) {
				key := newKey(t, tenant, "user")
				before := decisions
				for call := 1; call <= 3; call++ {
					d, err := gate.Decide(t.Context(), core.Charge{Policy: policy, Key: key, Cost: 1}, core.Charge{Policy: shadow, Key: key, Cost: 1})
					if err != nil || d.Allowed != (call <= want.allowed) {
						t.Errorf("call %d: %t, %v", call, d.Allowed, err)
					}
					e := events.take(plans.EventDisagreement)
					disagrees := false
					for _, n := range want.disagrees {
						disagrees = disagrees || n == call
					}
					switch {
					case disagrees != (len(e) == 1):
						t.Errorf("call %d: %d disagreements", call, len(e))
					case disagrees && (e[0].Tenant != tenant || e[0].Plan != tenant || e[0].Shadow != want.plan || e[0].Policy != policy || e[0].Allowed != d.Allowed):
						t.Errorf("call %d: %+v", call, e[0])
					}
				}
				if decisions != before+3 {
					t.Errorf("the next observer sees %d decisions", decisions-before)
				}
			})
		}
	})
}

func TestShadowOfNothing(t *testing.T) {
	p := newPlans(t, plans.Config{})
	if _, err := p.Shadow(nil); err == nil {
		t.Error("nil")
	}
	if _, err := p.Shadow(new(core.Policy)); err == nil {
		t.Error("zero")
	}
}
