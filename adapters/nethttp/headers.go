package nethttp

import (
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/core"
)

// Headers is the dialect in which responses state limits. Every dialect sets Retry-After on a
// refusal that a wait can change (RFC 9110, section 10.2.3), in whole seconds, rounded up, at least
// 1.
type Headers uint8

const (
	// StandardHeaders sets RateLimit and RateLimit-Policy as specified in
	// draft-ietf-httpapi-ratelimit-headers-10; drafts 08 to 11 are the same on the wire. Both are
	// lists with a member for each policy. q is the limit and w the seconds that it is for; the w
	// of a bucket is the time in which an empty one refills. r is what remains and t the
	// seconds until more does.
	StandardHeaders Headers = iota
	// LegacyEpoch sets X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset of one
	// policy: the one that denies for longest, or, if none denies, the one with the smallest part
	// of its limit left. Reset is the time at which the whole limit is available again, in seconds
	// since 1970 by this server's clock.
	LegacyEpoch
	// LegacyDelta is LegacyEpoch with the number of seconds until that time in Reset.
	LegacyDelta
	// NoHeaders sets Retry-After only.
	NoHeaders
)

// String returns the dialect in lower-case words.
func (h Headers) String() string {
	return nameOf([]string{"standard", "legacy epoch", "legacy delta", "none"}, int(h))
}

// WriteHeaders sets the headers that state the limits, and on a refusal Retry-After and
// Cache-Control. It adds to the lists of an outer Guard and keeps a Retry-After that is longer.
func (a *Admission) WriteHeaders(h http.Header) {
	if a.skipped {
		return
	}
	names := ""
	switch a.guard.cfg.Headers {
	case StandardHeaders:
		a.writeStandard(h)
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
	h.Set("Cache-Control", "no-store") // RFC 6585, section 4: a cache must not store a 429
	if wait, ok := a.retryAfter(); ok {
		outer, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
		if err != nil || outer < wait {
			h.Set("Retry-After", strconv.FormatInt(wait, 10))
		}
	}
}

// retryAfter returns the seconds for Retry-After, and whether to set it.
func (a *Admission) retryAfter() (int64, bool) {
	switch {
	case a.busy > 0:
		return max(1, ceilSeconds(a.busy)), true
	case a.handled:
		return 0, false
	case a.status != http.StatusTooManyRequests && a.status != http.StatusServiceUnavailable:
		return 0, false
	case a.hidesBlock():
		return 0, false
	case a.full != nil:
		return max(1, ceilSeconds(a.full.RetryAfter)), true
	case a.decision.Len() == 0,
		a.status == http.StatusServiceUnavailable && a.decision.Source != core.SourceClosed:
		return 1, true
	}
	wait := a.decision.RetryAfter()
	return max(1, ceilSeconds(wait)), wait != core.Never
}

func (a *Admission) writeStandard(h http.Header) {
	var rooms [2][128]byte
	policies, limits := rooms[0][:0], rooms[1][:0]
	for i := range a.decision.Len() {
		r, c := a.decision.At(i), &a.charged[i]
		if c.rule < 0 {
			continue // clients need not know how many strikes block
		}
		ad := &a.guard.adverts[c.rule]
		policy := ad.memberFor(r, c.limit)
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
	policies = appendMember(policies, a.capMembers())
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

// capMembers returns the members of RateLimit-Policy for the caps.
func (a *Admission) capMembers() string {
	switch {
	case !a.capped:
		return ""
	case a.guard.caps != "":
		return a.guard.caps
	}
	return a.guard.cfg.Concurrency.advertise(a.levels)
}

// appendMember appends a member, or several, to a list. It appends nothing for "".
func appendMember(list []byte, member string) []byte {
	if len(list) > 0 && member != "" {
		list = append(list, ", "...)
	}
	return append(list, member...)
}

func (a *Admission) writeLegacy(h http.Header) {
	i, ok := a.tightest()
	if !ok {
		return
	}
	r := a.decision.At(i)
	if a.Allowed() && tighter(h, r) { // an outer Guard's
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
		reset := time.Now().Add(r.ResetAfter)
		h.Set("X-RateLimit-Reset", seconds(time.Duration(reset.UnixNano())))
	}
}

// tighter reports whether h states a limit of which a smaller part is left.
func tighter(h http.Header, r core.Result) bool {
	limit, err := strconv.ParseInt(h.Get("X-RateLimit-Limit"), 10, 64)
	remaining, err2 := strconv.ParseInt(h.Get("X-RateLimit-Remaining"), 10, 64)
	return err == nil && err2 == nil && limit > 0 &&
		float64(remaining)/float64(limit) < partLeft(r)
}

// partLeft returns the part of a limit that is left.
func partLeft(r core.Result) float64 { return float64(r.Remaining) / float64(r.Limit) }

// tightest returns the index of the result that denies for longest, or, if the request is admitted,
// of the one with the smallest part of its limit left.
func (a *Admission) tightest() (at int, ok bool) {
	var best core.Result
	for i, r := range a.decision.Results() {
		if !r.Known || r.Limit == 0 || r.Source == core.SourceLocal || r.Policy.Shadow() ||
			r.Allowed != a.decision.Allowed || a.charged[i].rule < 0 {
			continue
		}
		closer := r.RetryAfter > best.RetryAfter
		if r.Allowed {
			closer = partLeft(r) < partLeft(best)
		}
		if !ok || closer {
			at, best, ok = i, r, true
		}
	}
	return at, ok
}
