package nethttp

import (
	"net/http"
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
//	  "streams": [
//	    {"name": "running", "q": 5, "qu": "concurrent-requests", "used": 2, "r": 3}
//	  ]
//	}
//
// There is a policy for each rule, in their order. w, t and reset are seconds: w is the window, t
// the wait until r rises, and reset the wait until all of q remains. They are rounded up, except a
// w below one second. t and reset are absent while nothing is used, and if nothing comes back.
// There is a stream for each Cap with a name, except Global ones, whose use is that of other
// clients. Blocks and shadow policies are not told.
//
// The keys, scope and limits are those that the functions of the rules and caps derive from the
// request for the usage, so a client learns what counts on its own keys and nothing else. Put the
// handler behind the same authentication as the Guard. A rule whose key depends on the route needs
// a route with the same parameters, such as /projects/{project}/usage. Skip and Cost are about the
// requests that count and are not called. Neither are Allow, Deny and Disabled.
//
// The handler spends nothing. It takes a round trip for the policies and one for the streams. Put a
// Guard around it where clients may flood it. A request without a key is refused as the Guard
// refuses it, except that a rule with NoKeySkip is left out. While Redis does not answer, the
// status is 503 with Retry-After. A response never holds a key or the text of an error.
func (g *Guard) Usage() http.Handler { return http.HandlerFunc(g.serveUsage) }

// usage is the body of a response.
type usage struct {
	Policies []policyUsage `json:"policies"`
	Streams  []streamUsage `json:"streams"`
}

type policyUsage struct {
	Name      string  `json:"name"`
	Quota     *int64  `json:"q,omitempty"`
	Unit      string  `json:"qu"`
	Window    float64 `json:"w,omitempty"`
	Used      *int64  `json:"used,omitempty"`
	Remaining *int64  `json:"r,omitempty"`
	Next      int64   `json:"t,omitempty"`
	Reset     int64   `json:"reset,omitempty"`
	Unlimited bool    `json:"unlimited,omitempty"`
}

type streamUsage struct {
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
	a := &Admission{guard: g}
	if !g.valid() {
		a.guard, a.status, a.err = new(Guard), http.StatusInternalServerError, errInvalidGuard
	}
	var u usage
	if a.Allowed() {
		u = a.usage(r)
	}
	if !a.Allowed() {
		a.WriteHeaders(h)
		a.guard.Refuse(w, r, a)
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
func (a *Admission) usage(r *http.Request) usage {
	u := usage{Policies: []policyUsage{}, Streams: []streamUsage{}}
	defer a.snapshot(r)()
	charges, err := a.deriveKeys(r)
	if err == nil && a.guard.cfg.Concurrency != nil {
		err = a.deriveLevels(r)
	}
	derived := err == nil
	if derived && len(charges) > 0 {
		u.Policies, err = a.policyUsages(r, charges)
	}
	if err == nil && a.guard.cfg.Concurrency != nil {
		u.Streams, err = a.streamUsages(r)
	}
	if err != nil {
		a.refuse(a.statusOf(derived, err))
		a.err = err
	}
	return u
}

// deriveKeys returns a charge of nothing for each rule that clients are told of.
func (a *Admission) deriveKeys(r *http.Request) (charges []core.Charge, err error) {
	for i := range a.guard.cfg.Rules {
		rule := &a.guard.cfg.Rules[i]
		if rule.Policy.Shadow() {
			continue
		}
		c, ok, err := a.chargeWithoutCost(rule, r)
		if err != nil {
			return nil, err
		}
		if ok {
			charges = append(charges, c)
		}
	}
	return charges, nil
}

func (a *Admission) policyUsages(r *http.Request, charges []core.Charge) ([]policyUsage, error) {
	d, err := a.guard.cfg.Gate.Peek(a.context(r), charges...)
	if err != nil {
		return nil, a.explain(charges, err)
	}
	if d.Cause != nil { // nobody knows what is used
		return nil, d.Cause
	}
	all := make([]policyUsage, 0, len(charges))
	for _, result := range d.Results() {
		all = append(all, policyUsageOf(result))
	}
	return all, nil
}

func policyUsageOf(r core.Result) policyUsage {
	u := policyUsage{Name: r.Policy.Name(), Unit: r.Policy.Unit().String()}
	if !r.Known {
		u.Unlimited = true
		return u
	}
	u.Quota, u.Used, u.Remaining = &r.Limit, &r.Used, &r.Remaining
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

// streamUsages returns how many requests of the request's keys run.
func (a *Admission) streamUsages(r *http.Request) ([]streamUsage, error) {
	c := a.guard.cfg.Concurrency
	all := []streamUsage{}
	var keys []core.Key
	for i, level := range c.Caps {
		if level.Name == "" || level.Global {
			continue
		}
		keys = append(keys, a.levels[i].Key)
		all = append(all, streamUsage{
			Name: level.Name, Unit: "concurrent-requests", Quota: a.levels[i].Limit,
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
