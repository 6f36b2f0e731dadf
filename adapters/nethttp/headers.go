package nethttp

import (
	"math/bits"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/core"
)

// Headers is the dialect in which responses tell about limits. All of them set Retry-After on a refusal
// where waiting helps (RFC 9110, section 10.2.3; whole seconds, rounded up, at least 1).
type Headers uint8

const (
	// StandardHeaders sets RateLimit and RateLimit-Policy as draft-ietf-httpapi-ratelimit-headers-10 has them; drafts 08
	// to 11 are the same on the wire. Each policy is a member of both lists. q is the limit and w the seconds it is for,
	// of a bucket those in which an exhausted one is whole again; r is what remains and t the seconds until that is more.
	StandardHeaders Headers = iota
	// LegacyEpoch sets X-RateLimit-Limit, -Remaining and -Reset of one policy: the one that denies for
	// longest, or else has the least left of its limit. Reset is the time when the whole limit is there again, in
	// seconds since 1970, by this server's clock.
	LegacyEpoch
	// LegacyDelta is LegacyEpoch, but Reset is the number of seconds until then.
	LegacyDelta
	// NoHeaders sets Retry-After only.
	NoHeaders
)

// maxInteger is the largest Integer of a structured field (RFC 9651, section 3.3.1).
const maxInteger = 999_999_999_999_999

// advert is what is told of a policy, whatever the request. Where keys have limits of their own, results tell of them.
type advert struct {
	name   string // quoted; empty if nothing is told
	limit  int64
	window time.Duration
	policy string // the member of RateLimit-Policy, empty if there is none
}

func advertise(p *core.Policy) advert {
	if p.Shadow() {
		return advert{}
	}
	a := advert{name: `"` + p.Name() + `"`}
	limit, window, ok := p.Quota()
	if ok {
		a.limit, a.window, a.policy = limit, window, member(a.name, limit, window)
		if window < time.Second {
			a.policy = member(a.name, perSecond(p.Algorithm(), limit, window), time.Second)
		}
	}
	return a
}

// member is a policy's member of RateLimit-Policy.
func member(name string, limit int64, window time.Duration) string {
	if window == core.Never {
		return name + ";q=" + integer(limit)
	}
	if window < time.Second {
		limit, window = perSecond(nil, limit, window), time.Second
	}
	return name + ";q=" + integer(limit) + ";w=" + seconds(window)
}

// perSecond is what a whole second allows, because w is at least 1: the rate, where the algorithm has one.
func perSecond(a core.Algorithm, limit int64, window time.Duration) int64 {
	switch a := a.(type) {
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

// of is the member of RateLimit-Policy for a result, empty if there is none.
func (a *advert) of(r core.Result, local bool) string {
	switch {
	case a.name == "" || r.Window == 0: // Unlimited
		return ""
	case local || r.Limit == a.limit && r.Window == a.window:
		return a.policy
	}
	return member(a.name, r.Limit, r.Window)
}

// WriteHeaders sets what the response tells about the limits, and on a refusal Retry-After and Cache-Control. Lists are
// appended to those of an outer Guard, and a longer Retry-After is left as it is.
func (a *Admission) WriteHeaders(h http.Header) {
	if a.exempt {
		return
	}
	names := ""
	switch a.guard.cfg.Headers {
	case StandardHeaders:
		a.writeDraft(h)
		names = "RateLimit, RateLimit-Policy, "
	case LegacyEpoch, LegacyDelta:
		a.writeLegacy(h)
		names = "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, "
	}
	if a.guard.cfg.ExposeHeaders {
		h.Add("Access-Control-Expose-Headers", names+"Retry-After")
	}
	if a.Allowed() {
		return
	}
	h.Set("Cache-Control", "no-store") // RFC 6585, section 4: a 429 must not be stored
	if wait, ok := a.retryAfter(); ok {
		if before, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64); err != nil || before < wait {
			h.Set("Retry-After", strconv.FormatInt(wait, 10))
		}
	}
}

// retryAfter is in whole seconds.
func (a *Admission) retryAfter() (int64, bool) {
	switch {
	case a.status != http.StatusTooManyRequests && a.status != http.StatusServiceUnavailable:
		return 0, false
	case a.full != nil:
		return max(1, ceilSeconds(a.full.RetryAfter)), true
	case a.decision.Len() == 0, a.status == http.StatusServiceUnavailable && a.decision.Source != core.SourceClosed:
		return 1, true
	}
	wait := a.decision.RetryAfter()
	return max(1, ceilSeconds(wait)), wait != core.Never
}

func (a *Admission) writeDraft(h http.Header) {
	var policies, limits []byte
	for i := range a.decision.Len() {
		ad, r := &a.guard.policies[a.rules[i]], a.decision.At(i)
		// A share that this process keeps alone says nothing of the limit.
		local := r.Source == core.SourceLocal
		policy := ad.of(r, local)
		if policy == "" {
			continue
		}
		policies = append(join(policies), policy...)
		if !r.Known || local {
			continue
		}
		limits = append(join(limits), ad.name...)
		limits = append(limits, ";r="...)
		limits = append(limits, integer(r.Remaining)...)
		if r.NextAfter > 0 && r.NextAfter != core.Never {
			limits = append(limits, ";t="...)
			limits = append(limits, seconds(r.NextAfter)...)
		}
	}
	if a.capped && a.guard.caps != "" {
		policies = append(join(policies), a.guard.caps...)
	}
	if len(policies) > 0 {
		h.Add("RateLimit-Policy", string(policies))
	}
	if len(limits) > 0 {
		h.Add("RateLimit", string(limits))
	}
}

func join(list []byte) []byte {
	if len(list) > 0 {
		list = append(list, ", "...)
	}
	return list
}

func (a *Admission) writeLegacy(h http.Header) {
	i, ok := a.tightest()
	if !ok {
		return
	}
	r := a.decision.At(i)
	if a.Allowed() && tighter(h, r) { // that of an outer Guard
		return
	}
	h.Set("X-RateLimit-Limit", integer(r.Limit))
	h.Set("X-RateLimit-Remaining", integer(r.Remaining))
	switch {
	case r.ResetAfter == core.Never:
		h.Del("X-RateLimit-Reset")
	case a.guard.cfg.Headers == LegacyDelta:
		h.Set("X-RateLimit-Reset", seconds(r.ResetAfter))
	default:
		h.Set("X-RateLimit-Reset", seconds(time.Duration(time.Now().Add(r.ResetAfter).UnixNano())))
	}
}

// tighter says whether the headers tell of a limit already of which less is left.
func tighter(h http.Header, r core.Result) bool {
	limit, err := strconv.ParseInt(h.Get("X-RateLimit-Limit"), 10, 64)
	remaining, err2 := strconv.ParseInt(h.Get("X-RateLimit-Remaining"), 10, 64)
	return err == nil && err2 == nil && limit > 0 && float64(remaining)/float64(limit) < float64(r.Remaining)/float64(r.Limit)
}

// tightest is the result that denies for longest, or of an admitted request the one with the least left.
func (a *Admission) tightest() (at int, ok bool) {
	var best core.Result
	for i := range a.decision.Len() {
		r := a.decision.At(i)
		if !r.Known || r.Limit == 0 || r.Source == core.SourceLocal || r.Policy.Shadow() || r.Allowed != a.decision.Allowed {
			continue
		}
		closer := r.RetryAfter > best.RetryAfter
		if r.Allowed {
			closer = float64(r.Remaining)/float64(r.Limit) < float64(best.Remaining)/float64(best.Limit)
		}
		if !ok || closer {
			at, best, ok = i, r, true
		}
	}
	return at, ok
}

func integer(n int64) string { return strconv.FormatInt(min(max(n, 0), maxInteger), 10) }

func seconds(d time.Duration) string { return integer(ceilSeconds(d)) }

func ceilSeconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}
