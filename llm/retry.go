package llm

import (
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
)

// Headers of the SDKs of model APIs, which read them before Retry-After and the status.
const (
	retryAfterMillis = "Retry-After-Ms"
	shouldRetry      = "X-Should-Retry"
)

// steerRetries tells the SDK of a refused client whether to retry and when. It keeps the wait of an
// outer Guard if that is longer.
func steerRetries(h http.Header, a *nethttp.Admission, within time.Duration) {
	wait, ok := a.RetryAfter()
	if !ok {
		return
	}
	outer := statedWait(h)
	if a.Status() >= http.StatusBadRequest && max(wait, outer) > patience(within) {
		h.Set(shouldRetry, "false")
	}
	switch {
	case wait == core.Never || wait <= outer:
	case wait < time.Second:
		h.Set(retryAfterMillis, strconv.FormatInt(max(1, milliseconds(wait)), 10))
	default:
		h.Del(retryAfterMillis)
	}
}

// statedWait returns the wait that h states, or -1. It deletes a number of milliseconds that is too
// short for the Retry-After of h.
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

// milliseconds returns the milliseconds of a wait, rounded up.
func milliseconds(wait time.Duration) int64 {
	n := int64(wait / time.Millisecond)
	if wait%time.Millisecond > 0 {
		n++
	}
	return n
}
