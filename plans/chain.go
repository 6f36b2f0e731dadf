package plans

import "github.com/headgate/headgate/core"

// chain is a core.Plan of several: the first that names a policy or a cap decides on it. It is
// immutable.
type chain struct {
	plans  []core.Plan
	inline [inlinePlans]core.Plan // memory of plans
}

// inlinePlans are for a tenant with an override, and for an organisation, a team and a user
// without.
const inlinePlans = 3

// chained returns the first of some plans that decides, or a chain of them.
func chained(plans []core.Plan) core.Plan {
	if len(plans) == 1 {
		return plans[0]
	}
	c := new(chain)
	c.plans = append(c.inline[:0], plans...)
	return c
}

// Algorithm returns the limit of the first plan that has one.
func (c *chain) Algorithm(policy string) core.Algorithm {
	for _, p := range c.plans {
		if limit := p.Algorithm(policy); limit != nil {
			return limit
		}
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
