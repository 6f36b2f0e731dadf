package nethttp

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Guard applies rules and caps to requests. NewGuard and Limit make one; the zero value refuses
// every request with 500. A Guard is immutable and safe for concurrent use.
type Guard struct {
	cfg      Config
	adverts  []advert // one for each rule
	caps     string   // the caps in RateLimit-Policy, if every request has the same
	policies string   // RateLimit-Policy of most requests
	settles  bool     // something depends on the response, or is held until there is one
	varies   bool     // limits depend on the request, so that they need one snapshot
}

// NewGuard returns a Guard, or every fault of the configuration at once.
func NewGuard(cfg Config) (*Guard, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Dialect == nil {
		cfg.Dialect = Draft11{}
	}
	cfg.Rules = slices.Clone(cfg.Rules)
	g := &Guard{cfg: cfg}
	var policies []byte
	for _, r := range cfg.Rules {
		ad := advertise(r.Policy)
		g.adverts = append(g.adverts, ad)
		policies = appendMember(policies, ad.member)
		g.settles = g.settles || r.Settle != nil || r.Policy.Hold() > 0
		// Of policies with limits per key the Gate takes a snapshot, in each of its decisions.
		g.varies = g.varies || r.Limit != nil || cfg.MaxDelay > 0 && r.Policy.PerKey()
	}
	g.cfg.Blocks = slices.Clone(cfg.Blocks)
	for _, b := range cfg.Blocks {
		g.settles = g.settles || b.Strikes != nil || b.Forget != nil
	}
	if cfg.Concurrency != nil {
		c := *cfg.Concurrency
		c.Caps = slices.Clone(c.Caps)
		g.cfg.Concurrency = &c
		for _, level := range c.Caps {
			g.varies = g.varies || level.LimitFor != nil || level.ShareFor != nil
		}
		if !slices.ContainsFunc(c.Caps, func(c Cap) bool { return c.LimitFor != nil }) {
			g.caps = c.advertise(nil)
		}
	}
	if cfg.Replay != nil {
		p := *cfg.Replay
		g.cfg.Replay = &p
	}
	g.policies = string(appendMember(policies, g.caps))
	return g, nil
}

// Limit returns a Guard of one rule: a policy of this name and algorithm, counted by key. Policies
// with the same name and algorithm share their counts across guards and processes.
func Limit(
	gate *core.Gate, name string, algorithm core.Algorithm, key keyfunc.Func,
) (*Guard, error) {
	policy, err := core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: algorithm})
	if err != nil {
		return nil, fmt.Errorf("nethttp: Limit: %w", err)
	}
	g, err := NewGuard(Config{Gate: gate, Rules: []Rule{{Policy: policy, Key: key}}})
	if err != nil {
		return nil, fmt.Errorf("nethttp: Limit: %w", err)
	}
	return g, nil
}

// Must returns g, and panics if err is not nil or neither NewGuard nor Limit made g. Like
// template.Must it is for the start of a program:
//
//	var api = nethttp.Must(nethttp.Limit(gate, "api", core.PerMinute(100), keyfunc.RemoteIP()))
func Must(g *Guard, err error) *Guard {
	if err == nil && !g.valid() {
		err = errInvalidGuard
	}
	if err != nil {
		panic(err)
	}
	return g
}

var errInvalidGuard = errors.New(
	"nethttp: the Guard is nil or zero: NewGuard or Limit must make it")

func (g *Guard) valid() bool {
	return g != nil && (len(g.cfg.Rules)+len(g.cfg.Blocks) > 0 ||
		g.cfg.Concurrency != nil || g.cfg.Replay != nil)
}

// Admit decides on a request, spends the costs of its rules and takes its slot. It writes nothing.
// It is for adapters: they call WriteHeaders, go on with WithContext or refuse, and call Finish
// when the handler has returned. Without Finish nothing is settled, and the slot stays taken as
// long as the process runs.
//
// Admit decides every request that it is given. A Guard that is mounted twice counts a request twice,
// and so does a router that dispatches it again. Requests that a handler makes out of its own, such
// as the parts of a batch, count each.
func (g *Guard) Admit(r *http.Request) *Admission {
	if !g.valid() {
		return &Admission{
			guard: new(Guard), status: http.StatusInternalServerError, err: errInvalidGuard,
		}
	}
	a := &Admission{guard: g, outer: AdmissionFromContext(r.Context())}
	if g.cfg.Disabled != nil && g.cfg.Disabled() || g.cfg.SkipPreflights && preflight(r) {
		a.decision.Allowed, a.skipped = true, true
		return a
	}
	allow := g.cfg.Allow != nil && g.cfg.Allow(r)
	switch {
	case allow && g.cfg.Replay == nil:
		a.decision.Allowed, a.skipped = true, true
		return a
	case !allow && g.cfg.Deny != nil && g.cfg.Deny(r):
		a.refuse(http.StatusForbidden)
	default:
		a.admit(r, allow)
	}
	if g.cfg.Observe != nil {
		a.observe(r)
	}
	return a
}

func (a *Admission) observe(r *http.Request) {
	returned := false
	defer func() {
		if !returned { // Observe panics, so the adapter cannot call Finish
			a.undo(r)
		}
	}()
	a.guard.cfg.Observe(r, a)
	returned = true
}

// undo gives back what the admission has taken.
func (a *Admission) undo(r *http.Request) {
	_ = a.attempt.Fail(r.Context())       // on failure the id is free when its lease ends
	_ = a.lease.Release(r.Context())      // on failure the slot is free when its lease ends
	_ = a.reservation.Cancel(r.Context()) // on failure the cost stays spent
}

// preflight reports whether a request is a CORS preflight (Fetch standard, section 3.3.2).
func preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}

// dialect returns that of the configuration. The zero Guard has the default one.
func (g *Guard) dialect() Dialect {
	if g.cfg.Dialect == nil {
		return Draft11{}
	}
	return g.cfg.Dialect
}

// Refuse answers a request that was not admitted, by Config.Refuse or in Config.Dialect.
func (g *Guard) Refuse(w http.ResponseWriter, r *http.Request, a *Admission) {
	switch {
	case g != nil && g.cfg.Refuse != nil:
		g.cfg.Refuse(w, r, a)
	case a.status < http.StatusMultipleChoices: // Replay.HandledStatus
		w.WriteHeader(a.status)
	default:
		a.guard.dialect().WriteRefusal(w, r, a)
	}
}
