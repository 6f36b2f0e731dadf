// Package signal reads what a response tells about the limits of its server: whether it refuses,
// for how long, whom that concerns, and how much is left.
package signal

import (
	"net/http"
	"time"
)

const (
	// MaxBody is the number of body bytes that Read needs of a refusal at most.
	MaxBody = 64 << 10
	// MaxWait is the longest Wait. A server that states a longer one is asked again after a day, so
	// that a wrong header ends.
	MaxWait = 24 * time.Hour
)

// Signal is what one response tells. The zero value tells nothing.
type Signal struct {
	// Refused reports that the server asks for fewer requests: a 429, or another status whose headers
	// or body say so.
	Refused bool
	// Wait is how long to wait before the next request, if HasWait. It is above 0 and at most MaxWait.
	// A wait that is over or cannot be read is none.
	Wait    time.Duration
	HasWait bool
	// Spent reports that waiting does not help: money or the quota of a day or longer is used up. Wait
	// is the time until the server gives more, if it tells.
	Spent bool
	// Doubtful reports that a spent account is told by a status of 400, which is the request's own fault
	// as a rule: one such response may be a mistake.
	Doubtful bool
	// Model reports that the refusal is of the requested model, as far as the response tells. It is
	// false if the response names the account, or is about the server's own load.
	Model bool
	// Apart reports that the refusal says nothing of other requests: the request alone is above the
	// limit, which has no Wait, or it needs a resource that others may not need. Model is false then.
	Apart bool
	// Remaining is what is left under those of the server's limits whose unit is known.
	Remaining []Remaining
}

// Remaining is what is left under one limit of a server.
type Remaining struct {
	// Name is what the server calls the limit, in lower case, such as "tokens-minute". It may be
	// empty.
	Name string
	// Unit is what the limit counts, as core.Unit names it: requests, tokens, input-tokens or
	// output-tokens.
	Unit string
	// Remaining and Limit are numbers of that unit. Limit is 0 if it is unknown.
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
	switch status {
	case http.StatusBadRequest, // Anthropic: no credit
		http.StatusPaymentRequired, http.StatusForbidden, http.StatusTooManyRequests,
		statusCapacityExceeded, statusOverloaded, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
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
// Refusal, and nil for all other responses. It may break off. The Date of the response replaces now
// where the clocks differ. Read never fails: what it cannot read tells nothing.
func Read(status int, h http.Header, body []byte, now time.Time) Signal {
	r := response{status: status, header: h, received: now}
	r.readHeaders(h)
	r.readFields(h)
	r.readLists(h)
	if Refusal(status) || len(body) > 0 {
		r.readBody(body[:min(len(body), MaxBody)])
		r.addCode(h.Get("X-Amzn-Errortype"))
	}
	s := r.refusal(r.wait(h))
	s.Remaining = r.remaining()
	return s
}

// refusal returns what a response tells that says to wait for that long, without what is left.
func (r *response) refusal(wait time.Duration) (s Signal) {
	s.Refused = r.refused(wait)
	if s.Spent = r.spent(s.Refused); !s.Refused && !s.Spent {
		return s
	}
	if r.tooLarge() {
		wait = 0
	}
	s.Wait, s.HasWait = wait, wait > 0
	s.Doubtful = s.Spent && r.status == http.StatusBadRequest
	s.Apart = r.tooLarge() || r.ofResource()
	s.Model = !s.Apart && r.concernsModel()
	return s
}

// response is what has been read of a response.
type response struct {
	status   int
	header   http.Header
	received time.Time
	windows  []window
	resource bool // the limit without a name is of a resource, which is not coreResource
	route    bool // it is of some routes: docs.discord.com/developers/topics/rate-limits, 2026-11
	body     body
}

// window is one limit of a response.
type window struct {
	Remaining
	family *family
	told   bool // Remaining is told
	past   bool // the reset is over, so what was left before it tells nothing
	stated bool // the provider has stated the unit
	judged bool // the provider says whether this limit refuses
	denied bool // it does
}

// empty reports whether a limit has nothing left.
func (w *window) empty() bool { return w.denied || w.told && w.Remaining.Remaining == 0 }

// long reports whether a limit is of a day or a longer time.
func (w *window) long() bool { return w.Window >= 24*time.Hour }

// refills reports whether the units of a limit come back one by one.
func (w *window) refills() bool {
	return w.family.refills && w.Name != "" && w.Window == 0
}

// maxWindows bounds the limits that are read of one response.
const maxWindows = 32

// window returns the limit of this name. With too many of them it returns one that nobody reads.
func (r *response) window(family *family, name string) *window {
	for i := range r.windows {
		if w := &r.windows[i]; w.family == family && w.Name == name {
			return w
		}
	}
	return r.add(window{family: family, Remaining: Remaining{
		Name: name, Unit: unitOf(name), Window: periodOf(name),
	}})
}

// add keeps a limit, unless there are too many of them.
func (r *response) add(w window) *window {
	if len(r.windows) == maxWindows {
		return &w
	}
	r.windows = append(r.windows, w)
	return &r.windows[len(r.windows)-1]
}

// remaining returns the limits that tell how much is left. It leaves out those that only some
// requests have, because nothing tells which rule counts them.
func (r *response) remaining() (all []Remaining) {
	for _, w := range r.windows {
		if w.Unit != "" && w.told && !w.past && !w.family.apart && (!r.resource && !r.route || w.Name != "") {
			w.Refills = w.refills()
			all = append(all, w.Remaining)
		}
	}
	return all
}
