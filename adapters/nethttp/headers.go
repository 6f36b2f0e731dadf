package nethttp

import (
	"net/http"

	"github.com/headgate/headgate/core"
)

// Headers is the dialect in which responses state limits. Every dialect sets Retry-After on a
// refusal that a wait can change (RFC 9110, section 10.2.3), in whole seconds, rounded up, at least
// 1.
type Headers uint8

const (
	// StandardHeaders sets RateLimit and RateLimit-Policy as specified in
	// draft-ietf-httpapi-ratelimit-headers-10; drafts 08 to 11 are the same on the wire. Both are
	// lists with a member for each policy. q is the limit, qu its unit unless it counts requests,
	// and w the seconds that it is for; the w of a bucket is the time in which an empty one refills.
	// r is what remains and t the seconds until more does.
	StandardHeaders Headers = iota
	// LegacyEpoch sets X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset of one
	// policy: the one that denies for longest, or, if none denies, the one with the smallest part
	// of its limit left. Reset is the time at which the whole limit is available again, in seconds
	// since 1970 by this server's clock.
	LegacyEpoch
	// LegacyDelta is LegacyEpoch with the number of seconds until that time in Reset.
	LegacyDelta
	// OpenAIHeaders sets the headers of the OpenAI API: x-ratelimit-limit-requests,
	// x-ratelimit-remaining-requests and x-ratelimit-reset-requests, and the same three for tokens.
	// Each three state one policy: of those that count requests, and of those that count tokens, be
	// it input, output or both. It is the one that denies for longest, or, if none of them denies,
	// the one with the smallest part of its limit left. Reset is the wait until the whole limit is
	// available, such as 6m0s or 12ms, rounded up to milliseconds; it is absent if that does not
	// come. A policy that counts money fills no header.
	//
	// Refusals tell the SDKs of that API how long to wait and when not to retry; see
	// Config.RetryWithin.
	OpenAIHeaders
	// AnthropicHeaders sets the headers of the Anthropic API: anthropic-ratelimit-requests-limit,
	// anthropic-ratelimit-requests-remaining and anthropic-ratelimit-requests-reset, and the same
	// three for tokens, input-tokens and output-tokens. Each three state one policy of that unit,
	// chosen as OpenAIHeaders does. Reset is a time in UTC as RFC 3339 has it, by this server's
	// clock, rounded up to seconds; it is absent if the whole limit does not become available.
	// Remaining is exact, while the Anthropic API itself rounds tokens to thousands.
	//
	// Refusals are those of OpenAIHeaders.
	AnthropicHeaders
	// NoHeaders sets Retry-After only.
	NoHeaders
)

// String returns the dialect in lower-case words.
func (h Headers) String() string {
	return nameOf([]string{
		"standard", "legacy epoch", "legacy delta", "openai", "anthropic", "none",
	}, int(h))
}

// WriteHeaders sets the headers that state the limits, and on a refusal Retry-After and
// Cache-Control. It adds to the lists of an outer Guard and keeps a Retry-After that is longer.
func (a *Admission) WriteHeaders(h http.Header) {
	if a.skipped {
		return
	}
	if a.guard.cfg.Headers == StandardHeaders {
		a.writeStandard(h)
	} else {
		a.writeDialect(h)
	}
	if a.guard.cfg.ExposeHeaders {
		h.Add("Access-Control-Expose-Headers", a.guard.exposed)
	}
	if a.Allowed() {
		return
	}
	h.Set("Cache-Control", "no-store") // RFC 6585, section 4: a cache must not store a 429
	a.writeRetry(h)
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
