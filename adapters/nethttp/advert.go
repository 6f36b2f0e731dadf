package nethttp

import (
	"math/bits"
	"time"

	"github.com/headgate/headgate/core"
)

// advert is what responses state about a policy.
type advert struct {
	name   string // quoted; empty for a block and a shadow policy, which clients do not see
	unit   string // the parameter qu, or empty for requests
	limit  int64
	window time.Duration
	member string // the policy's member of RateLimit-Policy, or empty
}

// advertised is what responses of a guard state about its policies and caps.
type advertised struct {
	policies string // RateLimit-Policy of most requests
	caps     string // the caps in it, with their own limits
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
