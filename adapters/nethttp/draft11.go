package nethttp

import (
	"math/bits"
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
)

// Draft11 is the default Dialect. It sets RateLimit and RateLimit-Policy as
// draft-ietf-httpapi-ratelimit-headers-11 specifies them; drafts 08 to 11 are the same on the wire.
// Both are lists with a member for each policy. q is the limit, qu its unit unless it counts
// requests, and w the seconds that it is for; the w of a bucket is the time in which an empty one
// refills. r is what remains and t the seconds until more does.
type Draft11 struct {
	// Refusal is the body of a refusal. The zero value is problem details.
	Refusal
}

// WriteHeaders states every policy. It adds to the lists of an outer Guard.
func (Draft11) WriteHeaders(h http.Header, a *Admission) {
	var rooms [2][128]byte
	policies, limits := rooms[0][:0], rooms[1][:0]
	for i := range a.decision.Len() {
		r := a.decision.At(i)
		ad := &a.charged[i].by.advert // a block has none: clients need not know how many strikes it takes
		policy := ad.memberFor(r, a.limitUnder(r.Policy))
		if policy == "" {
			continue
		}
		policies = appendMember(policies, policy)
		if !r.Known || r.Source == core.SourceLocal { // the share of one process is not the limit
			continue
		}
		limits = append(appendMember(limits, ad.name), ";r="...)
		limits = appendInteger(limits, r.Remaining)
		if r.NextAfter > 0 && r.NextAfter != core.Never {
			limits = appendInteger(append(limits, ";t="...), ceilSeconds(r.NextAfter))
		}
	}
	if a.capped {
		policies = a.guard.cfg.Slot.appendCaps(policies, a.caps)
	}
	if len(policies) == 0 {
		return
	}
	all := a.guard.policies
	if string(policies) != all {
		all = string(policies)
	}
	a.add(h, 0, "Ratelimit-Policy", all)
	if len(limits) > 0 {
		a.add(h, 1, "Ratelimit", string(limits))
	}
}

// add is h.Add for a canonical name. It keeps the only value of a name in slot i of the Admission,
// if that is free.
func (a *Admission) add(h http.Header, i int, name, value string) {
	if len(h[name]) > 0 || a.inlineHeaders[i] != "" {
		h[name] = append(h[name], value)
		return
	}
	a.inlineHeaders[i] = value
	h[name] = a.inlineHeaders[i : i+1 : i+1]
}

// advert is what responses state about a policy.
type advert struct {
	name   string // quoted; empty for a block and a shadow policy, which clients do not see
	unit   string // the parameter qu, or empty for requests
	limit  int64
	window time.Duration
	member string // the policy's member of RateLimit-Policy, or empty
}

func advertise(p *core.Policy) advert {
	if p.Shadow() {
		return advert{}
	}
	a := advert{name: `"` + p.Name() + `"`}
	if u := p.Unit(); u != core.UnitRequests {
		a.unit = `;qu="` + u.String() + `"`
	}
	if limit, window, ok := p.Quota(); ok {
		a.limit, a.window = limit, window
		a.member = a.format(p.Algorithm(), limit, window)
	}
	return a
}

// memberFor returns the member of RateLimit-Policy for a result, or "". own is the limit of the
// plan, or nil.
func (a *advert) memberFor(r core.Result, own core.Algorithm) string {
	local := r.Source == core.SourceLocal
	switch {
	case a.name == "" || r.Window == 0: // nothing to see, or Unlimited
		return ""
	case own != nil && local: // the result has the limit of this process's share
		return a.memberOf(own)
	case own == nil && (local || r.Limit == a.limit && r.Window == a.window):
		return a.member
	}
	return a.format(own, r.Limit, r.Window)
}

// memberOf returns the member of RateLimit-Policy for a limit.
func (a *advert) memberOf(own core.Algorithm) string {
	p, err := core.NewPolicy(core.PolicyConfig{Name: "own", Algorithm: own})
	if err != nil {
		return "" // the Gate has decided by this limit, so it is valid
	}
	limit, window, ok := p.Quota()
	if !ok {
		return ""
	}
	return a.format(own, limit, window)
}

// format returns the member of RateLimit-Policy for a limit of this algorithm. A window is told in
// whole seconds, so that of a shorter one is a second.
func (a *advert) format(algorithm core.Algorithm, limit int64, window time.Duration) string {
	if window == core.Never {
		return a.name + ";q=" + integer(limit) + a.unit
	}
	if window < time.Second {
		limit, window = perSecond(algorithm, limit, window), time.Second
	}
	return a.name + ";q=" + integer(limit) + a.unit + ";w=" + seconds(window)
}

// perSecond returns what one second allows: the rate of an algorithm that has one, and otherwise
// limit in each window.
func perSecond(algorithm core.Algorithm, limit int64, window time.Duration) int64 {
	switch a := algorithm.(type) {
	case core.TokenBucket:
		limit, window = a.Rate, a.Per
	case core.LeakyBucket:
		limit, window = a.Rate, a.Per
	}
	hi, lo := bits.Mul64(uint64(limit), uint64(time.Second))
	if hi >= uint64(window) {
		return maxInteger
	}
	n, _ := bits.Div64(hi, lo, uint64(window))
	return int64(min(n, maxInteger))
}
