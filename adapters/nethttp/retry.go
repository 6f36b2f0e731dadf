package nethttp

import (
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/core"
)

// Headers of the SDKs of model APIs, which read them before Retry-After and the status.
const (
	retryAfterMillis = "Retry-After-Ms"
	shouldRetry      = "X-Should-Retry"
)

// steersRetries reports whether the clients of a dialect obey the headers of those SDKs.
func (h Headers) steersRetries() bool { return h == OpenAIHeaders || h == AnthropicHeaders }

// writeRetry tells the client of a refusal when to come back. It keeps what an outer Guard says if
// that is stricter.
func (a *Admission) writeRetry(h http.Header) {
	wait, ok := a.wait()
	if !ok {
		return
	}
	steers := a.guard.cfg.Headers.steersRetries()
	outer := statedWait(h)
	if steers && a.status >= http.StatusBadRequest && max(wait, outer) > a.guard.cfg.RetryWithin {
		h.Set(shouldRetry, "false")
	}
	if wait == core.Never || wait <= outer {
		return
	}
	h.Set("Retry-After", strconv.FormatInt(max(1, ceil(wait, time.Second)), 10))
	if steers && wait < time.Second {
		h.Set(retryAfterMillis, strconv.FormatInt(max(1, ceil(wait, time.Millisecond)), 10))
	} else {
		h.Del(retryAfterMillis)
	}
}

// statedWait returns the wait that h states, or -1. It deletes a number of milliseconds that is too
// short for the seconds beside it.
func statedWait(h http.Header) time.Duration {
	wait := statedNumber(h, "Retry-After", time.Second)
	millis := statedNumber(h, retryAfterMillis, time.Millisecond)
	switch {
	case millis < 0:
		return wait
	case millis > wait-time.Second:
		return millis
	}
	h.Del(retryAfterMillis)
	return wait
}

func statedNumber(h http.Header, name string, unit time.Duration) time.Duration {
	n, err := strconv.ParseInt(h.Get(name), 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return time.Duration(min(n, int64(core.Never/unit))) * unit
}

// wait returns the wait after which a refused request may pass, core.Never if waiting does not
// help. It returns false if nobody knows.
func (a *Admission) wait() (wait time.Duration, ok bool) {
	switch {
	case a.busy > 0:
		return a.busy, true
	case a.handled, a.hidesBlock():
		return core.Never, true
	case a.status != http.StatusTooManyRequests && !a.overloaded():
		return 0, false
	case a.full != nil:
		return a.full.RetryAfter, true
	case a.decision.Len() == 0, a.overloaded() && a.decision.Source != core.SourceClosed:
		return time.Second, true
	}
	return a.decision.RetryAfter(), true
}

// overloaded reports whether the excess is ours and not the client's.
func (a *Admission) overloaded() bool { return a.status == a.guard.cfg.Refusal.overloaded() }
