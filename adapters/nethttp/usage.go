package nethttp

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/core"
)

// Usage returns a handler that tells a client its own limits, what it has used of them, and when
// they reset. It answers GET and HEAD with JSON. Its members have the names of the parameters of
// RateLimit-Policy and RateLimit:
//
//	{
//	  "policies": [
//	    {"name": "day", "q": 1000, "qu": "tokens", "w": 86400,
//	     "used": 9, "r": 991, "t": 60, "reset": 60},
//	    {"name": "search", "qu": "requests", "unlimited": true}
//	  ],
//	  "caps": [
//	    {"name": "running", "q": 5, "qu": "concurrent-requests", "used": 2, "r": 3}
//	  ]
//	}
//
// There is a policy for each rule, in their order, and behind it those of its Then. w, t and reset are
// seconds: w is the window, t the wait until r rises, and reset the wait until all of q remains. They
// are rounded up, except a w below one second. held is the part of used that running requests hold
// and may give back, if there is some. t and reset are absent while nothing is used, and if nothing
// comes back. There is a cap for each Cap with a name, except Global ones, whose use is that of
// other clients. The response omits blocks and shadow policies.
//
// The keys, scope and limits are those that the functions of the rules and caps derive from the
// request for the usage, so a client learns what counts on its own keys and nothing else. Put the
// handler behind the same authentication as the Guard. A rule whose key depends on the route needs
// a route with the same parameters, such as /projects/{project}/usage. Skip and Cost are about the
// requests that count and are not called. Neither are Skip and Deny of the Config.
//
// The handler spends nothing. It takes a round trip for the policies, and one for the caps. Put a Guard
// around it where clients may flood it. A request without a key is refused as the Guard refuses it,
// except that a rule with NoKeySkip is left out. While Redis does not answer, the status is 503 with
// Retry-After. A response never holds a key or the text of an error.
func (g *Guard) Usage() http.Handler { return http.HandlerFunc(g.serveUsage) }

// usage is the body of a response.
type usage struct {
	Policies []policyUsage `json:"policies"`
	Caps     []capUsage    `json:"caps"`
}

type policyUsage struct {
	Name      string  `json:"name"`
	Quota     *int64  `json:"q,omitempty"`
	Unit      string  `json:"qu"`
	Window    float64 `json:"w,omitempty"`
	Used      *int64  `json:"used,omitempty"`
	Held      int64   `json:"held,omitempty"`
	Remaining *int64  `json:"r,omitempty"`
	Next      int64   `json:"t,omitempty"`
	Reset     int64   `json:"reset,omitempty"`
	Unlimited bool    `json:"unlimited,omitempty"`
}

type capUsage struct {
	Name      string `json:"name"`
	Quota     int64  `json:"q"`
	Unit      string `json:"qu"`
	Used      int64  `json:"used"`
	Remaining int64  `json:"r"`
}

func (g *Guard) serveUsage(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return
	}
	x := open(g, r)
	var u usage
	if x.guard == noGuard {
		x.status, x.err = http.StatusInternalServerError, errInvalidGuard
	} else {
		u = x.usage(r)
	}
	if !x.Allowed() {
		x.WriteHeaders(h)
		g.Refuse(w, r, &x.Admission)
		return
	}
	body := append(marshal(u), '\n')
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
}

// usage reads what the request's keys have used, or sets the status and the error of a refusal.
func (x *Exchange) usage(r *http.Request) usage {
	u := usage{Policies: []policyUsage{}, Caps: []capUsage{}}
	charges, err := x.deriveKeys(r)
	if err == nil && x.guard.cfg.Slot != nil {
		err = x.deriveCaps(r)
	}
	derived := err == nil
	if derived && len(charges) > 0 {
		u.Policies, err = x.policyUsages(r, charges)
	}
	if err == nil && x.guard.cfg.Slot != nil {
		u.Caps, err = x.capUsages(r)
	}
	if err != nil {
		x.refuse(x.statusOf(derived, err))
		x.err = err
	}
	return u
}

// deriveKeys returns a charge of nothing for each policy that clients are told of.
func (x *Exchange) deriveKeys(r *http.Request) (charges []core.Charge, err error) {
	for _, by := range x.guard.rules {
		if by.policy.Shadow() {
			continue
		}
		c, ok, err := x.chargeWithoutCost(by.rule, r)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		for next := by; next != nil && !next.policy.Shadow(); next = x.following(next) { // a shadow denies nothing
			c.Policy, c.Limit = next.policy, x.limitUnder(next.policy)
			charges = append(charges, c)
		}
	}
	return charges, nil
}

// policyUsages asks about charges that spend nothing, as many as there are.
func (x *Exchange) policyUsages(r *http.Request, charges []core.Charge) (all []policyUsage, err error) {
	for some := range slices.Chunk(charges, core.MaxCharges) {
		d, err := x.guard.cfg.Gate.Peek(r.Context(), some...)
		if err != nil {
			return nil, explain(some, err)
		}
		if d.Cause != nil { // nobody knows what is used
			return nil, d.Cause
		}
		for _, result := range d.Results() {
			all = append(all, policyUsageOf(result))
		}
	}
	return all, nil
}

func policyUsageOf(r core.Result) policyUsage {
	u := policyUsage{Name: r.Policy.Name(), Unit: r.Policy.Unit().String()}
	if !r.Known {
		u.Unlimited = true
		return u
	}
	u.Quota, u.Used, u.Held, u.Remaining = &r.Limit, &r.Used, r.Held, &r.Remaining
	u.Next, u.Reset = secondsUntil(r.NextAfter), secondsUntil(r.ResetAfter)
	switch {
	case r.Window == core.Never:
	case r.Window < time.Second:
		u.Window = r.Window.Seconds()
	default:
		u.Window = float64(ceilSeconds(r.Window))
	}
	return u
}

// secondsUntil returns the seconds of a wait, rounded up, or 0 if waiting does not help.
func secondsUntil(wait time.Duration) int64 {
	if wait == core.Never {
		return 0
	}
	return ceilSeconds(wait)
}

// capUsages returns how many requests of the request's keys run.
func (x *Exchange) capUsages(r *http.Request) ([]capUsage, error) {
	c := x.guard.cfg.Slot
	all := []capUsage{}
	var keys []core.Key
	for i, level := range c.Caps {
		if level.Name == "" || level.Global {
			continue
		}
		keys = append(keys, x.caps[i].Key)
		all = append(all, capUsage{
			Name: level.Name, Unit: "concurrent-requests", Quota: x.caps[i].Limit,
		})
	}
	used, err := c.Semaphore.Usage(r.Context(), keys...)
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].Used = used[i]
		all[i].Remaining = max(0, all[i].Quota-used[i])
	}
	return all, nil
}
