package outbound

import (
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/outbound/internal/signal"
)

// A request is strained if others use the upstream's account so much that it refuses what the rules
// let pass. It then reserves nothing for later, because what a response tells is too late for a
// reservation. Requests of this process still wait in order.
const (
	// strainLasts is for how long a refusal, or a response that tells of others, strains requests.
	strainLasts = time.Minute
	// strainPeriod is the longest time in which a limit is full again that a response may tell so of.
	strainPeriod = time.Minute
	// reserveShare is the part of an upstream's limit, one in that many, that strained requests leave
	// to others: a response does not tell what they have used since.
	reserveShare = 10
	leastReserve = 3
)

// strained reports whether others use up what the request may.
func (x *exchange) strained() bool {
	s := &x.t.cool.strains
	return s.within(x.narrowest(), strainLasts) || s.within(x.account(), strainLasts)
}

// shared is a limit that others may use too.
type shared struct {
	size, used int64 // as far as the upstream tells
	reserve    int64 // what strained requests leave to others
}

// sharedOf returns what a response tells of a limit that is full again soon. It asks no more of the
// upstream's limit than the rate of the rule fills until then, because the bucket may be smaller
// than the limit.
func sharedOf(told *signal.Remaining, rule *core.Policy) (s shared, ok bool) {
	limit, window, _ := rule.Quota()
	if told.Limit == 0 || told.Reset <= 0 || told.Reset > strainPeriod || told.Window > strainPeriod ||
		window <= 0 || window == core.Never {
		return s, false
	}
	fills := int64(float64(limit) * told.Reset.Seconds() / window.Seconds())
	s.size = min(told.Limit, told.Remaining+fills)
	s.used = max(0, s.size-told.Remaining)
	s.reserve = min(max(s.size/reserveShare, leastReserve), s.size/2)
	return s, true
}

// strain notes if little is left of a limit, and others have used it.
func (p *pass) strain(i int, left int64, s shared) {
	used := p.margins[i].used
	if left < 2*s.reserve && used >= 0 && s.used > used+s.reserve {
		p.x.t.cool.strains.add(p.x.narrowest(), time.Now())
	}
}
