package nethttp

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// charged is what one rule charges a request.
type charged struct {
	rule  int // index in Config.Rules
	cost  int64
	limit core.Algorithm // from Rule.Limit, or nil
}

// errLimit is wrapped by the errors of a Rule.Limit or Cap.LimitFor that fails.
var errLimit = errors.New("nethttp: limit")

// Charges returns the charges that Admit would decide for a request: one for each rule that
// applies, in the order of the rules, with its key, cost and limit. It spends nothing. Use it with
// core.Gate.Peek and core.Gate.Reset. The request may be one that an operator's program makes up,
// as long as it has what the rules' Key, Skip, Limit and Cost read.
//
// Charges ignores Config.Disabled, preflights and earlier admissions. It reads up to Rule.CostBody
// bytes of the body and puts them back. There are no charges if no rule applies.
func (g *Guard) Charges(r *http.Request) ([]core.Charge, error) {
	if !g.valid() {
		return nil, errInvalidGuard
	}
	a := &Admission{guard: g}
	return a.deriveCharges(r, nil)
}

// deriveCharges appends what the request is charged under the rules that apply to it.
func (a *Admission) deriveCharges(r *http.Request, charges []core.Charge) ([]core.Charge, error) {
	a.charged = a.inlineCharged[:0]
	for i := range a.guard.cfg.Rules {
		rule := &a.guard.cfg.Rules[i]
		if rule.Skip != nil && rule.Skip(r) {
			continue
		}
		key, err := a.ruleKey(rule, r)
		if rule.NoKey == NoKeySkip && errors.Is(err, errRuleKey) &&
			errors.Is(err, keyfunc.ErrNoKey) && !errors.Is(err, keyfunc.ErrAmbiguous) {
			continue
		}
		if err != nil {
			return nil, err
		}
		limit, err := rule.limit(r)
		if err != nil {
			return nil, err
		}
		cost, err := rule.cost(r)
		if err != nil {
			return nil, err
		}
		charges = append(charges, core.Charge{
			Policy: rule.Policy, Key: key, Cost: cost, Limit: limit,
		})
		a.charged = append(a.charged, charged{i, cost, limit})
	}
	return charges, nil
}

// errRuleKey is wrapped by the errors of a Rule.Key, as opposed to those of Config.Scope.
var errRuleKey = errors.New("nethttp: key")

// ruleKey derives the key of a rule below the scope.
func (a *Admission) ruleKey(rule *Rule, r *http.Request) (core.Key, error) {
	if err := a.deriveScope(r); err != nil {
		return core.Key{}, err
	}
	part, err := derive(rule.Key, r)
	if err != nil {
		return core.Key{}, fmt.Errorf("%w of %s: %w", errRuleKey, rule.Policy.Name(), err)
	}
	var key core.Key
	if a.scope != "" {
		key, err = core.NewKey(a.scope, part)
	} else {
		key, err = core.NewKey(part)
	}
	if err != nil {
		return core.Key{}, fmt.Errorf("%w of %s: %w", errRuleKey, rule.Policy.Name(), err)
	}
	return key, nil
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
func (rule *Rule) limit(r *http.Request) (core.Algorithm, error) {
	if rule.Limit == nil {
		return nil, nil
	}
	limit, err := rule.Limit(r)
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
