package nethttp

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
)

// class is a set of policies of which one has a header for its limit, for what remains and for when
// it is whole again.
type class struct {
	units                   []core.Unit // of the policies; nil for all
	limit, remaining, reset string
}

// legacy are the classes of LegacyEpoch and LegacyDelta.
var legacy = []class{{
	limit: "X-RateLimit-Limit", remaining: "X-RateLimit-Remaining", reset: "X-RateLimit-Reset",
}}

// dialects are the classes of each dialect, except those of StandardHeaders, which states every
// policy.
var dialects = [...][]class{
	LegacyEpoch: legacy,
	LegacyDelta: legacy,
	OpenAIHeaders: {
		{
			units:     []core.Unit{core.UnitRequests},
			limit:     "X-Ratelimit-Limit-Requests",
			remaining: "X-Ratelimit-Remaining-Requests",
			reset:     "X-Ratelimit-Reset-Requests",
		},
		{
			units:     []core.Unit{core.UnitTokens, core.UnitInputTokens, core.UnitOutputTokens},
			limit:     "X-Ratelimit-Limit-Tokens",
			remaining: "X-Ratelimit-Remaining-Tokens",
			reset:     "X-Ratelimit-Reset-Tokens",
		},
	},
	AnthropicHeaders: {
		anthropic(core.UnitRequests, "Requests"),
		anthropic(core.UnitTokens, "Tokens"),
		anthropic(core.UnitInputTokens, "Input-Tokens"),
		anthropic(core.UnitOutputTokens, "Output-Tokens"),
	},
	NoHeaders: nil,
}

func anthropic(unit core.Unit, name string) class {
	name = "Anthropic-Ratelimit-" + name
	return class{
		units:     []core.Unit{unit},
		limit:     name + "-Limit",
		remaining: name + "-Remaining",
		reset:     name + "-Reset",
	}
}

// names returns the headers of a dialect as Access-Control-Expose-Headers lists them.
func (h Headers) names() string {
	var names []string
	if h == StandardHeaders {
		names = []string{"RateLimit", "RateLimit-Policy"}
	}
	for _, c := range dialects[h] {
		names = append(names, c.limit, c.remaining, c.reset)
	}
	names = append(names, "Retry-After")
	if h.steersRetries() {
		names = append(names, retryAfterMillis, shouldRetry)
	}
	return strings.Join(names, ", ")
}

// writeDialect states one policy of each class of the dialect.
func (a *Admission) writeDialect(h http.Header) {
	for i := range dialects[a.guard.cfg.Headers] {
		c := &dialects[a.guard.cfg.Headers][i]
		r, ok := a.tightest(c)
		if !ok || r.Allowed && c.tighter(h, r) { // an outer Guard's
			continue
		}
		h.Set(c.limit, integer(r.Limit))
		h.Set(c.remaining, integer(r.Remaining))
		if r.ResetAfter == core.Never {
			h.Del(c.reset)
		} else {
			h.Set(c.reset, a.guard.cfg.Headers.reset(r.ResetAfter))
		}
	}
}

// reset formats the wait until a limit is whole.
func (h Headers) reset(wait time.Duration) string {
	switch h {
	case LegacyDelta:
		return seconds(wait)
	case OpenAIHeaders:
		return (time.Duration(ceil(wait, time.Millisecond)) * time.Millisecond).String()
	}
	at := time.Now().Add(wait)
	if whole := at.Truncate(time.Second); whole.Before(at) {
		at = whole.Add(time.Second)
	}
	if h == AnthropicHeaders {
		return at.UTC().Format(time.RFC3339)
	}
	return integer(at.Unix())
}

// tighter reports whether h states a limit of the class of which a smaller part is left.
func (c *class) tighter(h http.Header, r core.Result) bool {
	limit, err := strconv.ParseInt(h.Get(c.limit), 10, 64)
	remaining, err2 := strconv.ParseInt(h.Get(c.remaining), 10, 64)
	return err == nil && err2 == nil && limit > 0 &&
		float64(remaining)/float64(limit) < partLeft(r)
}

// partLeft returns the part of a limit that is left.
func partLeft(r core.Result) float64 { return float64(r.Remaining) / float64(r.Limit) }

// tightest returns the result of the class that denies for longest, or, if none of the class
// denies, the one with the smallest part of its limit left.
func (a *Admission) tightest(c *class) (best core.Result, ok bool) {
	denied := a.denies(c)
	for i, r := range a.decision.Results() {
		if !a.belongs(c, i, r) || r.Allowed == denied ||
			!r.Known || r.Limit == 0 || r.Source == core.SourceLocal {
			continue
		}
		closer := r.RetryAfter > best.RetryAfter
		if r.Allowed {
			closer = partLeft(r) < partLeft(best)
		}
		if !ok || closer {
			best, ok = r, true
		}
	}
	return best, ok
}

// denies reports whether a policy of the class denies. A class of all policies has no other headers
// beside it that could state what denies, so it says nothing of the policies that admit a request
// that is refused.
func (a *Admission) denies(c *class) bool {
	if c.units == nil {
		return !a.decision.Allowed
	}
	for i, r := range a.decision.Results() {
		if a.belongs(c, i, r) && !r.Allowed {
			return true
		}
	}
	return false
}

// belongs reports whether clients are told of result i, as one of the class.
func (a *Admission) belongs(c *class, i int, r core.Result) bool {
	return a.charged[i].rule >= 0 && !r.Policy.Shadow() &&
		(c.units == nil || slices.Contains(c.units, r.Policy.Unit()))
}
