package core

import "github.com/headgate/headgate/internal/algorithm"

// mostMerged is the largest number of units that a charge may have to be decided with equal ones: sums stay exact.
const mostMerged = 1 << 40

// merges says whether equal requests can be decided as one: nothing but the reply is to be known of any of them.
func (r *request) mergeable() bool {
	if r.op != algorithmDecide || r.slot != nil || r.receipts {
		return false
	}
	for i := range r.charges {
		c := &r.charges[i]
		if _, ok := c.limit.(algorithm.Mergeable); !ok || c.policy.shadow || c.units < 1 || c.units > mostMerged || c.units > c.limit.Capacity() {
			return false
		}
	}
	return true
}

// equal says whether two requests that can be merged are the same.
func (r *request) equal(o *request) bool {
	if len(r.charges) != len(o.charges) {
		return false
	}
	for i := range r.charges {
		c, d := &r.charges[i], &o.charges[i]
		if c.units != d.units || c.limit != d.limit || !c.same(d) {
			return false
		}
	}
	return true
}

// merged is what is to be known of a request that stands for several.
type merged []mergedCharge

type mergedCharge struct {
	limit algorithm.Mergeable
	units int64
}

func merge(r *request) merged {
	m := make(merged, len(r.charges))
	for i := range r.charges {
		m[i] = mergedCharge{r.charges[i].limit.(algorithm.Mergeable), r.charges[i].units}
	}
	return m
}

// reply writes that to the request of caller n, from 0, as if they had been decided one after the other: all is the reply to all
// of them, whose verdict is how many fit.
func (m merged) reply(own, all []int64, n int64) {
	copy(own, all)
	before, admitted := min(n, all[0]), n < all[0]
	own[0] = 0
	rest := own[1:]
	for i, c := range m {
		fields := c.limit.Fields()
		c.limit.After(rest, c.limit.Cost(c.units*before))
		rest[fields-1] = 0
		switch {
		case admitted:
			rest[fields-1] = 1
		case c.limit.Read(rest, algorithm.Cost{}, c.units).RetryAfter > 0:
			own[0] |= 1 << i
		}
		rest = rest[fields:]
	}
}
