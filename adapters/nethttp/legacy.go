package nethttp

import (
	"net/http"

	"github.com/headgate/headgate/core"
)

// Legacy is the Dialect that sets X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset of
// one policy: the one that denies for longest, or, if none denies, the one with the smallest part of
// its limit left. Reset is the number of seconds until the whole limit is available again. It is
// absent if that is more than Config.LongestWait, because clients sleep until Reset where there is
// no Retry-After.
type Legacy struct {
	// Epoch states in Reset the time at which the whole limit is available again, in seconds since
	// 1970; see ResetAt.
	Epoch bool
	// Refusal is the body of a refusal. The zero value is problem details.
	Refusal
}

var legacyHeaders = LimitHeaders{
	Limit: "X-RateLimit-Limit", Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset",
}

// WriteHeaders states one policy.
func (l Legacy) WriteHeaders(h http.Header, a *Admission) {
	legacyHeaders.Write(h, a, func(r core.Result) string {
		switch {
		case r.ResetAfter > a.guard.longestWait():
			return ""
		case l.Epoch:
			return integer(ResetAt(r).Unix())
		}
		return seconds(r.ResetAfter)
	})
}
