package plans

import "github.com/headgate/headgate/core"

// chain is a core.Plan of several, nearest first: the first that names a policy or a cap decides on it.
// It is immutable.
type chain struct {
	plans  []*plan
	inline [inlinePlans]*plan // memory of plans
}

// inlinePlans are for a tenant with an override, and for an organisation, a team and a user
// without.
const inlinePlans = 3

// chained returns the only one of some plans, or a chain of them.
func chained(plans []*plan) core.Plan {
	if len(plans) == 1 {
		return plans[0]
	}
	c := new(chain)
	c.plans = append(c.inline[:0], plans...)
	return c
}

// Algorithm returns the limit of the first plan that has one.
func (c *chain) Algorithm(policy string) core.Algorithm { return limitOf(c.plans, policy) }

// limitOf returns the limit of the first plan that has one. A Calendar of an Override that has no anchor
// begins its periods where that of the plans behind it does: an Override changes limits and not periods.
func limitOf(plans []*plan, policy string) core.Algorithm {
	for i, p := range plans {
		limit := p.Algorithm(policy)
		if limit == nil {
			continue
		}
		own, ok := limit.(core.Calendar)
		if !ok || p.name != "" || !own.Anchor.IsZero() {
			return limit
		}
		behind, ok := limitOf(plans[i+1:], policy).(core.Calendar)
		if !ok || behind.Every != own.Every {
			return limit
		}
		own.Anchor = behind.Anchor
		own.In = behind.In
		return own
	}
	return nil
}

// Cap returns the numbers of the first plan that has one of them.
func (c *chain) Cap(name string) (limit, share, floor int64) {
	for _, p := range c.plans {
		if limit, share, floor = p.Cap(name); limit != 0 || share != 0 || floor != 0 {
			return limit, share, floor
		}
	}
	return 0, 0, 0
}
