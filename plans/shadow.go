package plans

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/core"
)

// Shadow returns a policy to charge beside a policy, with the same key and cost. It counts by the
// shadow plan of the key's tenant, and never denies. Its name is that of the policy and "-shadow".
// A tenant whose plan has no shadow is not counted, and under a policy that the shadow plan says
// nothing about it has the policy's own Algorithm, as it will when the plan holds. Observe reports
// disagreements between the two.
func (p *Plans) Shadow(policy *core.Policy) (*core.Policy, error) {
	switch {
	case policy == nil || policy.Name() == "":
		return nil, errors.New("plans: Shadow: the policy is missing: core.NewPolicy must make it")
	case policy.Shadow() || !policy.PerKey():
		return nil, fmt.Errorf("plans: Shadow: the policy %s must have a For, and be no shadow itself",
			policy.Name())
	}
	shadow, err := core.NewPolicy(core.PolicyConfig{
		Name: policy.Name() + "-shadow", Algorithm: core.Unlimited{}, Shadow: true,
		Unit: policy.Unit(), Hold: policy.Hold(),
		For: func(ctx context.Context, key core.Key) (core.Algorithm, error) {
			id, err := p.whose(ctx, key)
			if err != nil {
				return nil, err
			}
			v := p.view(ctx, id)
			if v.err != nil || v.plan.shadow == nil {
				return nil, v.err
			}
			v.plan = v.plan.shadow
			if limit := v.limit(policy.Name()); limit != nil {
				return limit, nil
			}
			return policy.Algorithm(), nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("plans: Shadow: %w", err)
	}
	p.shadows.Store(shadow, policy)
	return shadow, nil
}

// Observe returns a function for core.Config.Observe that reports disagreements: an
// EventDisagreement for each charge that a plan allows and its shadow would deny, or the reverse.
// It calls next too, unless that is nil.
func (p *Plans) Observe(next func(context.Context, core.Event)) func(context.Context, core.Event) {
	return func(ctx context.Context, e core.Event) {
		if d, ok := e.(*core.DecisionEvent); ok && d.Op != core.OpPeek && d.Decision.Cause == nil {
			p.compare(ctx, &d.Decision, d.Charges)
		}
		if next != nil {
			next(ctx, e)
		}
	}
}

func (p *Plans) compare(ctx context.Context, d *core.Decision, charges []core.Charge) {
	for i := range min(d.Len(), len(charges)) {
		if !charges[i].Policy.Shadow() {
			continue
		}
		of, ok := p.shadows.Load(charges[i].Policy)
		if !ok {
			continue
		}
		shadow := d.At(i)
		for j := range min(d.Len(), len(charges)) {
			if charges[j].Policy != of || charges[j].Key != charges[i].Key {
				continue
			}
			if policy := d.At(j); policy.Allowed != shadow.Allowed {
				p.disagree(ctx, charges[j], policy.Allowed)
			}
			break
		}
	}
}

func (p *Plans) disagree(ctx context.Context, charge core.Charge, allowed bool) {
	id, err := p.whose(ctx, charge.Key)
	if err != nil {
		return // its decision has failed
	}
	e := Event{
		Kind: EventDisagreement, Tenant: id.tenant(), Policy: charge.Policy, Allowed: allowed,
	}
	digest := p.tenants.digest(id.name)
	t := p.tenants.shard(digest).find(digest)
	if t == nil {
		return // evicted since
	}
	plan := p.viewOf(p.current.Load(), &t.known).plan
	if plan.shadow == nil {
		return // the shadow policy decides nothing, and allows everything
	}
	e.Plan, e.Shadow = plan.name, plan.shadow.name
	p.tell(e)
}
