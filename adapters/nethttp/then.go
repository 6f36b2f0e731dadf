package nethttp

import (
	"time"

	"github.com/headgate/headgate/core"
)

// chargerOf returns the charger of a rule, with one for each policy that follows when it denies.
func chargerOf(r *Rule) *charger {
	var next *charger
	for i := len(r.Then) - 1; i >= 0; i-- {
		next = &charger{rule: r, policy: r.Then[i], advert: advertise(r.Then[i]), then: next, kept: r.keptBy(i + 1)}
	}
	return &charger{rule: r, policy: r.Policy, advert: advertise(r.Policy), then: next, kept: r.keptBy(0)}
}

// follow replaces the charges that deny the request by those under the policies that follow, and
// reports whether the request is to be decided again. A denial spends nothing.
func (x *Exchange) follow(charges []core.Charge) (again bool) {
	if x.decision.Allowed {
		return false
	}
	for i, d := range x.denials() {
		if x.charged[i].by.block != nil || d.Source == core.SourceClosed || d.Source == core.SourceOverload {
			return false // it would be denied under every policy
		}
	}
	for i, d := range x.denials() {
		c := &x.charged[i]
		if next := x.following(c.by); next != nil && !d.DeniesAll {
			charges[i].Policy, charges[i].Limit = next.policy, x.limitUnder(next.policy)
			c.by = next
			if x.sooner == nil {
				x.sooner = make(map[int]time.Duration)
			}
			x.sooner[i] = d.RetryAfter
			again = true
		}
	}
	return again
}

// following returns what follows when a charger denies, or nil. A policy that denies everything, such as
// one that the plan does not name, follows nothing.
func (x *Exchange) following(c *charger) *charger {
	for next := c.then; next != nil; next = next.then {
		limit := x.limitUnder(next.policy)
		if limit == nil {
			limit = next.policy.Algorithm()
		}
		if _, denies := limit.(core.DenyAll); !denies {
			return next
		}
	}
	return nil
}
