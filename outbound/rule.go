package outbound

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/headgate/headgate/core"
)

// Rule is one limit of a Transport.
type Rule struct {
	// Policy names the limit. It is required. Requests wait in one order over all replicas if its
	// algorithm is a core.TokenBucket or a core.LeakyBucket. Use a Burst that the upstream takes at
	// once. Under a core.LeakyBucket requests go no closer to each other than its rate allows, and a
	// Slot takes a second round trip.
	//
	// If the policy has a Hold, what a process has spent for requests that run goes back when it dies.
	Policy *core.Policy
	// Key derives whose limit it is, such as ByCredential. It is required.
	Key KeyFunc
	// Cost returns what a request spends, zero or more, and 0 spends nothing. It must not read the
	// body. Nil is the estimate of Config.Meter in the unit of the policy, or 1 if the unit is
	// core.UnitRequests or the Meter measures nothing of the request. A policy of another unit needs
	// one of the two. A negative cost fails the request. A request that no connection could be made for
	// gives its cost back. It may not where all rules are TokenBuckets that refill and nothing is settled.
	Cost func(*http.Request) int64
	// Clamp lowers a cost above the limit to the limit, so that a request whose cost is an estimate
	// can pass. The rest is charged when the response has ended. If neither Settle nor Config.Meter
	// tells the actual cost, a request that is refused or gets no response is not charged the rest.
	Clamp bool
	// Settle returns the actual cost of a request, when the body of its response has ended or was
	// closed; that of a refusal may have ended before the caller reads it. The request is the one that
	// Cost got; ModelOf tells its model. The response is nil if there was none; its Body must not be
	// read. A lower cost is refunded, and a higher one is charged even if it does not fit; see
	// core.Reservation.Settle. A negative cost is 0. Nil is what Config.Meter has measured, and
	// otherwise keeps the cost.
	Settle func(r *http.Request, res *http.Response, cost int64) (actual int64)
	// Skip skips the rule for the requests for which it returns true. Nil skips none.
	Skip func(*http.Request) bool
	// Limit is the upstream's own name of the limit: what its headers call it, such as "tokens" of
	// X-RateLimit-Remaining-Tokens or "requests" of Anthropic-RateLimit-Requests-Remaining; "requests"
	// if they give no name, as GitHub's core; or the name of another resource of GitHub's, such as
	// "search". If a response tells that less is left of that limit than the rule counts, because
	// others use the account too, the rule counts that. If nothing is left until a reset, requests
	// under the rule wait for it. No count lowers a core.LeakyBucket, or a core.SlidingWindow without
	// Buckets. Empty ignores what responses tell.
	Limit string
}

func (r *Rule) check(i int, metered bool, names map[string]bool, fault faultFunc) {
	at := fmt.Sprintf("Rules[%d]", i)
	switch p := r.Policy; {
	case p == nil || p.Name() == "":
		fault("%s.Policy is missing: core.NewPolicy must make it", at)
	case names[p.Name()]:
		fault("%s.Policy is named %q, like that of another rule, or like a cooldown", at, p.Name())
	default:
		names[p.Name()] = true
		if _, blocks := p.Algorithm().(core.Block); blocks {
			fault("%s.Policy is a core.Block: the Transport has its own", at)
		}
		if r.Cost == nil && !metered && r.measured() {
			fault("%s counts %s, but neither its Cost nor Config.Meter tells how many", at, p.Unit())
		}
	}
	if r.Key == nil {
		fault("%s.Key is nil: say whose limit it is, such as ByCredential", at)
	}
}

// measured reports whether the Meter knows the cost of the rule.
func (r *Rule) measured() bool { return r.Policy.Unit() != core.UnitRequests }

// charge returns what a request is charged under the rule.
func (r *Rule) charge(req *http.Request, m Measure) (core.Charge, error) {
	c := core.Charge{Policy: r.Policy, Cost: 1, Clamp: r.Clamp}
	key, err := r.Key(req)
	if err != nil {
		return c, wrapped(err)
	}
	c.Key = key
	switch {
	case r.Cost != nil:
		c.Cost = r.Cost(req)
	case m != nil && r.measured():
		c.Cost = m.Estimate(r.Policy.Unit())
	}
	if c.Cost < 0 {
		return c, fmt.Errorf("outbound: %w: the cost under %s is %d: it must not be negative",
			core.ErrCharge, r.Policy.Name(), c.Cost)
	}
	c.Cost = cmp.Or(c.Cost, core.NoCost)
	return c, nil
}

// actual returns what the request of a pass has cost under the rule of charge i.
func (r *ruled) actual(p *pass, i int) int64 {
	cost := max(0, p.x.charges[i].Cost)
	switch m := p.x.measure; {
	case r.Settle != nil:
		return max(0, r.Settle(p.x.req, p.res, cost))
	case r.Cost == nil && m != nil && r.measured() && p.res != nil: // otherwise m may know an earlier response
		if n, known := m.Actual(r.Policy.Unit()); known {
			return max(0, n)
		}
	}
	if r.Clamp && (p.res == nil || p.refused) {
		return inside.Spent(p.paid)[i]
	}
	return cost
}
