package nethttp

import (
	"net/http"
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
