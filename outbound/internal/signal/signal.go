// Package signal reads what a response tells about the limits of its server: whether it refuses,
// for how long, whom that concerns, and how much is left. What it knows of servers stands in tables:
// see facts.go.
package signal

import (
	"net/http"
	"slices"
	"time"
)

const (
	// MaxBody is the number of body bytes that Read needs of a refusal at most.
	MaxBody = 64 << 10
	// MaxWait is the longest Wait. A server that states a longer one is asked again after a day, so
	// that a wrong header ends.
	MaxWait = 24 * time.Hour
)

// Reason is why a server refuses.
type Reason uint8

const (
	None   Reason = iota // it does not
	Slow                 // the caller is too fast
	Loaded               // the server has too much load
	Spent                // money or the quota of a day or longer is used up, so waiting does not help
)

// Scope is whom a refusal concerns.
type Scope uint8

const (
	Model   Scope = iota // the requested model, or the account if there is no model
	Account              // the account
	Route                // what the request asks for, which others may not need
	Request              // the request alone: it is above the limit, which no wait changes
	Scopes               // is how many there are
)

// Signal is what one response tells. The zero value tells nothing.
type Signal struct {
	Reason Reason
	Scope  Scope
	// Wait is how long to wait before the next request, at most MaxWait. It is 0 if the response tells
	// none, or one that is over or cannot be read.
	Wait time.Duration
	// Remaining is what is left under the server's limits.
	Remaining []Remaining
}

// Remaining is what is left under one limit of a server.
type Remaining struct {
	// Name is what the server calls the limit, in lower case, such as "tokens-minute". A limit without
	// a name is "requests", or the resource that it is of.
	Name string
	// Remaining and Limit are numbers of units. Limit is 0 if it is unknown.
	Remaining, Limit int64
	// Reset is the time until Remaining is Limit. It is at most MaxWait, and 0 if it is unknown.
	Reset time.Duration
	// Refills reports that units come back one by one until Reset. Otherwise none does before Reset, as
	// far as is known.
	Refills bool
	// Window is the period of the limit. It is 0 if it is unknown.
	Window time.Duration
}

// Refusal reports whether a response of this status may refuse because of a limit, so that Read
// needs its body.
func Refusal(status int) bool {
	_, ok := statuses[status]
	return ok
}

// Read returns what a response tells, at the time now. The body is the first MaxBody bytes of a
// Refusal, and nil for all other responses. The Date of the response replaces now where the clocks
// differ. Read never fails: what it cannot read tells nothing.
func Read(status int, h http.Header, body []byte, now time.Time) Signal {
	r := response{status: status, header: h, received: now}
	r.readHeaders()
	s := Signal{}
	if Refusal(status) {
		r.readBody(body)
		r.addCode(h.Get("X-Amzn-Errortype"))
		s = r.refusal(r.wait(h))
	}
	s.Remaining = r.windows
	return s
}

// response is what has been read of a response.
type response struct {
	status   int
	header   http.Header
	received time.Time
	limits   []limit
	windows  []Remaining
	failure  failure
	message  string // of the failure, in lower case
	means    [meanings]bool
}

// refusal returns what a response tells that says to wait for that long, without what is left.
func (r *response) refusal(wait time.Duration) (s Signal) {
	s.Reason = r.reason(wait)
	if s.Reason == None {
		return s
	}
	s.Scope = r.scope(s.Reason, wait)
	if s.Scope != Request {
		s.Wait = wait
	}
	return s
}

// reason returns why the server refuses.
func (r *response) reason(wait time.Duration) Reason {
	status := statuses[r.status]
	refuses := status.refuses || status.waits && wait > 0 ||
		slices.ContainsFunc(status.means, func(m meaning) bool { return r.means[m] })
	switch {
	case r.means[spent]:
		return Spent
	case r.status == http.StatusPaymentRequired && !refuses:
		return Spent
	case !refuses:
		return None
	case r.means[large]:
		return Slow
	case r.ofDay():
		return Spent
	case r.status >= statusCapacityExceeded, r.means[loaded]:
		return Loaded
	}
	return Slow
}

// scope returns whom a refusal concerns, as far as the response tells.
func (r *response) scope(reason Reason, wait time.Duration) Scope {
	switch {
	case r.means[large] && !r.means[spent]:
		return Request
	case r.ofRoute():
		return Route
	case r.status == http.StatusPaymentRequired, r.means[spent], r.means[blocked], r.deniesAccount():
		return Account
	case len(r.quotas()) > 0:
		if anyContains(r.quotas(), "permodel") {
			return Model
		}
		return Account
	case reason == Loaded && wait > 0 && !anyContains([]string{r.message}, "model"):
		return Account
	}
	return Model
}
