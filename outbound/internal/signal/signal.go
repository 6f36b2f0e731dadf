// Package signal reads what a response tells about the limits of its server: whether it refuses,
// for how long, and how much is left.
package signal

import (
	"net/http"
	"time"
)

// MaxBody is the number of body bytes that Read needs of a refusal at most.
const MaxBody = 64 << 10

// Signal is what one response tells. The zero value tells nothing.
type Signal struct {
	// Refused reports that the server asks for fewer requests: a 429, or another status whose headers
	// or body say so.
	Refused bool
	// Wait is how long to wait before the next request, if HasWait. It is 0 for a time that has
	// passed.
	Wait    time.Duration
	HasWait bool
	// Spent reports that waiting for Wait does not help: money or a quota of a day or longer is used
	// up. Wait is the time until the server gives more, if it tells.
	Spent bool
	// Model reports that the refusal is of the requested model. All others are of the account.
	Model bool
	// Remaining is what is left under the server's limits.
	Remaining []Remaining
}

// Remaining is what is left under one limit of a server.
type Remaining struct {
	// Unit is what the limit counts, as core.Unit names it: requests, tokens, input-tokens,
	// output-tokens.
	Unit string
	// Remaining and Limit are numbers of that unit. Limit is 0 if it is unknown.
	Remaining, Limit int64
	// Reset is the time until Remaining is Limit. It is 0 if it is unknown.
	Reset time.Duration
}

// Refusal reports whether a response of this status may refuse because of a limit, so that Read
// needs its body.
func Refusal(status int) bool {
	switch status {
	case http.StatusPaymentRequired, http.StatusForbidden, http.StatusTooManyRequests,
		statusCapacityExceeded, http.StatusServiceUnavailable, statusOverloaded:
		return true
	}
	return false
}

// Statuses without a name in package http.
const (
	statusCapacityExceeded = 498 // Groq, flex tier
	statusOverloaded       = 529 // Anthropic
)

// Read returns what a response tells, at the time now. The body is the first MaxBody bytes of a
// Refusal, and nil for all other responses.
func Read(status int, h http.Header, body []byte, now time.Time) Signal {
	var s Signal
	if !Refusal(status) {
		return s
	}
	s.Wait, s.HasWait = retryAfter(h, now)
	s.Refused = status == http.StatusTooManyRequests || status == statusOverloaded ||
		status == http.StatusServiceUnavailable && s.HasWait
	return s
}
