// Package signal reads what a response tells about the limits of its server: whether it refuses,
// for how long, whom that concerns, and how much is left. What it knows of servers stands in tables:
// see facts.go.
package signal

import (
	"net/http"
	"slices"
	"strings"
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
		for _, name := range challenges {
			r.means[large] = r.means[large] || status == http.StatusPaymentRequired && h[name] != nil
		}
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
	limits   map[limit]map[string][]string // the values of the members of each
	windows  []Remaining
	code     int      // of the failure, or 0
	told     []string // the waits that the failure states
	quotas   string   // the ids of those that the failure names, in lower case
	message  string   // of the failure, in lower case
	means    [meanings]bool
}

// refusal returns what a response tells that says to wait for that long, without what is left.
func (r *response) refusal(wait time.Duration) (s Signal) {
	m := r.meaning(wait)
	if m == 0 {
		return s
	}
	s.Reason = meant[m].reason
	s.Scope = meant[m].scope
	switch {
	case m == large:
		return s
	case r.ofRoute():
		s.Scope = Route
	case s.Scope == Account: // as the error says
	case r.deniesAccount(), r.quotas != "" && !strings.Contains(r.quotas, "permodel"),
		s.Reason == Loaded && wait > 0 && r.ofGateway() && !strings.Contains(r.message, "model"):
		s.Scope = Account
	}
	if r.ofDay() {
		s.Reason = Spent
	}
	s.Wait = wait
	return s
}

// meaning returns the strongest meaning of a response, or 0 if it refuses nothing.
func (r *response) meaning(wait time.Duration) meaning {
	status := statuses[r.status]
	for m := brief; m < quota; m++ {
		if r.means[m] && (m == spent || status.alone != 0 || slices.Contains(status.heeds, m)) {
			return m
		}
	}
	if wait > 0 {
		return status.waits
	}
	return status.alone
}
