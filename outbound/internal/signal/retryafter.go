package signal

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// longest bounds every wait, so that a number of a thousand years does not overflow.
const longest = 100 * 365 * 24 * time.Hour

// retryAfter returns the wait of Retry-After: seconds or an HTTP date (RFC 9110, section 10.2.3).
// Of several values the longest that can be read holds. A date in the past is no wait.
func retryAfter(h http.Header, now time.Time) (wait time.Duration, ok bool) {
	for _, value := range h.Values("Retry-After") {
		d, readable := delay(strings.TrimSpace(value), now)
		if readable {
			wait, ok = max(wait, d), true
		}
	}
	return wait, ok
}

func delay(value string, now time.Time) (time.Duration, bool) {
	if n, err := strconv.ParseFloat(value, 64); err == nil {
		if !(n >= 0) { // also what is no number
			return 0, false
		}
		return time.Duration(math.Ceil(min(n, longest.Seconds()) * float64(time.Second))), true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(0, at.Sub(now)), longest), true
}
