package nethttp

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// charged is what one rule charges a request.
type charged struct {
	rule  int // index in Config.Rules; -1 - index of a BlockRule in Config.Blocks
	cost  int64
	limit core.Algorithm // from Rule.Limit, or nil
}

// errLimit is wrapped by the errors of a Rule.Limit, Cap.LimitFor or Cap.ShareFor that fails.
var errLimit = errors.New("nethttp: limit")

// Charges returns the charges that Admit would decide for a request: one for each BlockRule and
// each rule that applies, in their order, with its key, cost and limit. It spends nothing. Use it
// with core.Gate.Peek and core.Gate.Reset. The request may be one that an operator's program makes
// up, as long as it has what the rules' Key, Skip, Limit and Cost read.
//
// Charges ignores Config.Disabled and preflights. It reads up to Rule.CostBody
// bytes of the body and puts them back. There are no charges if no rule applies.
func (g *Guard) Charges(r *http.Request) ([]core.Charge, error) {
	if !g.valid() {
		return nil, errInvalidGuard
	}
	a := &Admission{guard: g}
	defer a.snapshot(r)()
	blocks, err := a.deriveBlocks(r, nil)
	if err != nil {
		return nil, err
	}
	return a.deriveRules(r, blocks)
}

// deriveAll appends what the request is charged. If a trap catches the request, or if a client is
// blocked whose charges under the rules cannot be derived, it decides.
func (a *Admission) deriveAll(
	r *http.Request, charges []core.Charge,
) (_ []core.Charge, decided bool, err error) {
	blocks, err := a.deriveBlocks(r, charges)
	if err != nil {
		return nil, false, err
	}
	if len(a.guard.cfg.Blocks) > 0 {
		if decided, err = a.trap(r, blocks); decided || err != nil {
			return blocks, decided, err
		}
	}
	charges, err = a.deriveRules(r, blocks)
	if err != nil && len(blocks) > 0 {
		a.charged = a.charged[:len(blocks)]
		if d, fault := a.guard.cfg.Gate.Decide(r.Context(), blocks...); fault == nil && !d.Allowed {
			a.decision = d
			return blocks, true, nil
		}
	}
	return charges, false, err
}

// deriveBlocks appends charges that ask whether the request's keys are blocked.
func (a *Admission) deriveBlocks(r *http.Request, charges []core.Charge) ([]core.Charge, error) {
	a.charged = a.inlineCharged[:0]
	for i := range a.guard.cfg.Blocks {
		b := &a.guard.cfg.Blocks[i]
		key, ok, err := a.ruleKey(b.Policy.Name(), b.Key, b.NoKey, r)
		if err != nil {
			return nil, err
		}
		if ok {
			charges = append(charges, core.Charge{Policy: b.Policy, Key: key, Cost: core.NoCost})
			a.charged = append(a.charged, charged{rule: -1 - i})
			a.blockKeys = append(a.blockKeys, key)
		}
	}
	return charges, nil
}

// deriveRules appends what the request is charged under the rules that apply to it.
func (a *Admission) deriveRules(r *http.Request, charges []core.Charge) ([]core.Charge, error) {
	for i := range a.guard.cfg.Rules {
		rule := &a.guard.cfg.Rules[i]
		if rule.Skip != nil && rule.Skip(r) {
			continue
		}
		c, ok, err := a.chargeWithoutCost(rule, r)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		cost, err := rule.cost(r)
		if err != nil {
			return nil, err
		}
		c.Cost = cmp.Or(cost, core.NoCost)
		charges = append(charges, c)
		a.charged = append(a.charged, charged{i, cost, c.Limit})
	}
	return charges, nil
}

// chargeWithoutCost returns what a rule charges the request, except for the cost. It reports false
// if the rule skips a request without a key.
func (a *Admission) chargeWithoutCost(rule *Rule, r *http.Request) (c core.Charge, ok bool, err error) {
	key, ok, err := a.ruleKey(rule.Policy.Name(), rule.Key, rule.NoKey, r)
	if err != nil || !ok {
		return c, false, err
	}
	limit, err := rule.limit(a, r)
	return core.Charge{Policy: rule.Policy, Key: key, Cost: core.NoCost, Limit: limit, Clamp: rule.Clamp}, true, err
}

// ruleKey derives the key of a rule below the scope. It reports false if the request has none and
// the rule does not apply then.
func (a *Admission) ruleKey(
	of string, f keyfunc.Func, noKey NoKey, r *http.Request,
) (key core.Key, ok bool, err error) {
	if err := a.deriveScope(r); err != nil {
		return core.Key{}, false, err
	}
	part, err := derive(f, r)
	switch {
	case err != nil && noKey == NoKeySkip &&
		errors.Is(err, keyfunc.ErrNoKey) && !errors.Is(err, keyfunc.ErrAmbiguous):
		return core.Key{}, false, nil
	case err != nil:
	case a.scope != "":
		key, err = core.NewKey(a.scope, part)
	default:
		key, err = core.NewKey(part)
	}
	if err != nil {
		return core.Key{}, false, fmt.Errorf("nethttp: key of %s: %w", of, err)
	}
	return key, true, nil
}

// deriveScope sets the scope once, if the Guard has one.
func (a *Admission) deriveScope(r *http.Request) (err error) {
	if f := a.guard.cfg.Scope; f != nil && a.scope == "" {
		if a.scope, err = derive(f, r); err != nil {
			return fmt.Errorf("nethttp: scope: %w", err)
		}
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

// limit returns the limit of this request, or nil for that of the policy.
func (rule *Rule) limit(a *Admission, r *http.Request) (core.Algorithm, error) {
	if rule.Limit == nil {
		return nil, nil
	}
	limit, err := inSnapshot(a, r, rule.Limit)
	if err != nil {
		return nil, fmt.Errorf("%w of %s: %w", errLimit, rule.Policy.Name(), err)
	}
	return limit, nil
}

// cost returns what the request spends.
func (rule *Rule) cost(r *http.Request) (cost int64, err error) {
	switch {
	case rule.Cost == nil:
		return 1, nil
	case rule.CostBody > 0 && hasBody(r):
		if cost, err = costOfBody(r, rule.Cost, rule.CostBody); err != nil {
			return 0, err
		}
	default:
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
