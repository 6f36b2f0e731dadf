package redisstore

import (
	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/request"
)

// merged is what an entry keeps of each charge of a request that stands for several.
type merged []mergedCharge

type mergedCharge struct {
	limit algorithm.Mergeable
	units int64
}

func merge(r *request.Request) merged {
	m := make(merged, len(r.Sent()))
	for i, c := range r.Sent() {
		m[i] = mergedCharge{c.Limit.(algorithm.Mergeable), c.Units}
	}
	return m
}

// reply writes the reply to caller n, from 0, as if the callers had been decided one after the
// other. all is the reply to all of them, whose verdict is the number of callers that fit.
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
