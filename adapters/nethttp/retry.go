package nethttp

import (
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/core"
)

// RetryAfter returns the wait after which a refused request may pass, and core.Never if no wait
// helps. It returns false if nobody knows, and for a request that may go on. Retry-After tells the
// same wait in seconds.
func (a *Admission) RetryAfter() (wait time.Duration, ok bool) {
	switch {
	case a.busy > 0:
		return a.busy, true
	case a.handled, a.hidesBlock():
		return core.Never, true
	case a.status != http.StatusTooManyRequests && !a.overloaded:
		return 0, false
	case a.full != nil:
		return a.full.RetryAfter, true
	case a.decision.Len() == 0, a.overloaded && a.decision.Source != core.SourceClosed:
		return time.Second, true
	}
	return a.decision.RetryAfter(), true
}

// WriteHeaders sets the headers that state the limits, and on a refusal Retry-After and
// Cache-Control. It adds to the lists of an outer Guard and keeps a Retry-After that is longer.
func (a *Admission) WriteHeaders(h http.Header) {
	if a.skipped {
		return
	}
	a.guard.dialect().WriteHeaders(h, a)
	if a.Allowed() {
		return
	}
	h.Set("Cache-Control", "no-store") // RFC 6585, section 4: a cache must not store a 429
	wait, ok := a.RetryAfter()
	if !ok || wait == core.Never {
		return
	}
	after := max(1, ceilSeconds(wait))
	if outer, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64); err == nil && outer >= after {
		return
	}
	h.Set("Retry-After", strconv.FormatInt(after, 10))
}
