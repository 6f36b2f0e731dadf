package nethttp

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Charges returns the charges that Admit would decide for a request: one for each BlockRule and
// each rule that applies, in their order, with its key, cost and limit. It spends nothing. Use it
// with core.Gate.Peek and core.Gate.Reset. The request may be one that an operator's program makes
// up, as long as it has what Config.Plan and the rules' Key, Skip and Cost read. What is charged under
// a Rule.Then is not among them.
//
// Charges ignores Config.Skip and Config.Deny. It reads up to Rule.CostBody
// bytes of the body and puts them back. There are no charges if no rule applies.
func (g *Guard) Charges(r *http.Request) ([]core.Charge, error) {
	if err := g.Check(); err != nil {
		return nil, err
	}
	x := open(g, r)
	if err := x.deriveBlocks(r); err != nil {
		return nil, err
	}
	return x.deriveRules(r, x.blocks, false)
}

// deriveCharges appends what the request is charged. If a trap catches the request, or if a client
// is blocked whose charges under the rules cannot be derived, it decides.
func (x *Exchange) deriveCharges(
	r *http.Request, charges []core.Charge,
) (_ []core.Charge, decided bool, err error) {
	if err := x.deriveBlocks(r); err != nil {
		return nil, false, err
	}
	if caught, err := x.trap(r); caught {
		return nil, true, err
	}
	if x.denyUnread(r) {
		return nil, true, nil
	}
	charges, err = x.deriveRules(r, append(charges, x.blocks...), false)
	if err != nil {
		x.charged = x.charged[:len(x.blocks)]
		if d, fault := x.askBlocks(r.Context()); fault == nil && !d.Allowed {
			x.decision = d
			return nil, true, nil
		}
	}
	return charges, false, err
}

// deriveRules appends what the request is charged under the rules that apply to it. As long as the body is
// unread, those whose cost depends on it are left out.
func (x *Exchange) deriveRules(
	r *http.Request, charges []core.Charge, unread bool,
) ([]core.Charge, error) {
	for _, by := range x.guard.rules {
		rule := by.rule
		if unread && rule.readsBody() || rule.Skip != nil && rule.Skip(r) {
			continue
		}
		c, ok, err := x.chargeWithoutCost(rule, r)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		cost := int64(1)
		if rule.Cost != nil {
			if cost, err = rule.cost(r); err != nil {
				return nil, err
			}
		}
		c.Cost = cmp.Or(cost, core.NoCost)
		charges = append(charges, c)
		x.charged = append(x.charged, charged{by: by, cost: cost})
	}
	return charges, nil
}

// chargeWithoutCost returns what a rule charges the request, except for the cost. It reports false
// if the rule skips a request without a key.
func (x *Exchange) chargeWithoutCost(
	rule *Rule, r *http.Request,
) (c core.Charge, ok bool, err error) {
	key, ok, err := x.ruleKey(rule.Policy.Name(), rule.Key, rule.NoKey, r)
	if err != nil || !ok {
		return c, false, err
	}
	c = core.Charge{Policy: rule.Policy, Key: key, Cost: core.NoCost, Clamp: rule.Clamp}
	if x.guard.cfg.Plan != nil {
		err = x.derivePlan(r)
		c.Limit = x.limitUnder(rule.Policy)
	}
	return c, err == nil, err
}

// limitUnder returns the limit of the plan under a policy, or nil for that of the policy.
func (a *Admission) limitUnder(p *core.Policy) core.Algorithm {
	if a.plan == nil {
		return nil
	}
	return a.plan.Algorithm(p.Name())
}

// readsBody reports whether the cost depends on the body.
func (rule *Rule) readsBody() bool { return rule.CostBody > 0 }

// cost returns what the request spends, as Cost says.
func (rule *Rule) cost(r *http.Request) (cost int64, err error) {
	if rule.readsBody() && hasBody(r) {
		if cost, err = costOfBody(r, rule.Cost, rule.CostBody); err != nil {
			return 0, err
		}
	} else {
		cost = rule.Cost(r)
	}
	switch {
	case cost == -1 && r.ContentLength == -1:
		err = fmt.Errorf("nethttp: %w: Rule.Cost of %s returned -1, which is the ContentLength of a "+
			"chunked body: use nethttp.ContentLength", core.ErrCharge, rule.Policy.Name())
	case cost < 0:
		err = fmt.Errorf("nethttp: %w: Rule.Cost of %s returned %d: it must not be negative",
			core.ErrCharge, rule.Policy.Name(), cost)
	}
	return cost, err
}

// ruleKey derives the key of a rule below the scope. It reports false if the request has none and
// the rule does not apply then.
func (x *Exchange) ruleKey(
	of string, f keyfunc.Func, noKey NoKey, r *http.Request,
) (key core.Key, ok bool, err error) {
	if err := x.deriveScope(r); err != nil {
		return core.Key{}, false, err
	}
	part, err := derive(f, r)
	switch {
	case err != nil && noKey == NoKeySkip &&
		errors.Is(err, keyfunc.ErrNoKey) && !errors.Is(err, keyfunc.ErrAmbiguous):
		return core.Key{}, false, nil
	case err != nil:
	case x.guard.cfg.Scope != nil:
		key, err = core.NewKey(x.scope, part)
	default:
		key, err = core.NewKey(part)
	}
	if err != nil {
		return core.Key{}, false, fmt.Errorf("nethttp: key of %s: %w", of, err)
	}
	return key, true, nil
}

// deriveScope sets the scope once, if the Guard has one.
func (x *Exchange) deriveScope(r *http.Request) (err error) {
	of := x.guard.cfg.Scope
	if of == nil || x.scope != "" {
		return nil
	}
	if x.scope, err = derive(of, r); err != nil {
		return fmt.Errorf("nethttp: scope: %w", err)
	}
	return nil
}

// derive returns the key of a request, which is never empty without an error.
func derive(f keyfunc.Func, r *http.Request) (string, error) {
	key, err := f(r)
	if err == nil && key == "" {
		err = keyfunc.ErrNoKey
	}
	return key, err
}
