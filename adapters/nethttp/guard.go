package nethttp

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Config configures a Guard.
type Config struct {
	// Gate decides. It is required where there are Rules.
	Gate *core.Gate
	// Rules are the limits, up to 16, and at least 1 if there is no Concurrency. Their policies have different names.
	Rules []Rule
	// Concurrency caps how many requests run at a time, if not nil.
	Concurrency *Concurrency
	// Scope, if not nil, is the outermost part of all rules' keys, such as the tenant. Rules in one scope are
	// decided in one script on a Redis Cluster too. A request to which a rule applies and that has no scope is refused
	// with 400.
	Scope keyfunc.Func
	// MaxDelay is how long a request is delayed, rather than refused, until its rules have room: those of a
	// core.TokenBucket or core.LeakyBucket, which is a queue then. All others have room now, or refuse. A client that leaves
	// meanwhile spends nothing. Zero delays nothing.
	MaxDelay time.Duration
	// BufferBody is up to how many bytes of a request's body are read before the request may wait, for MaxDelay or in the
	// queue of Concurrency; the handler reads them from memory. A server of HTTP/1 notices that a client has left only
	// when the body is read, and so holds the place of one that left while a longer body is unread, which is passed on as
	// it comes. A body that breaks off is refused with 400, or 413 by http.MaxBytesReader, and spends nothing. Zero reads nothing.
	BufferBody int64
	// Disabled exempts every request while it returns true, if not nil: a switch to turn the guard off, such as the
	// Load method of an atomic.Bool.
	Disabled func() bool
	// SkipPreflights exempts CORS preflights: for where the CORS middleware stands inside of the guard, or passes
	// preflights on. Anybody can send them, so what answers them must be cheap.
	SkipPreflights bool
	// ExposeHeaders lets scripts of other origins read the headers of this guard, by Access-Control-Expose-Headers.
	ExposeHeaders bool
	// Headers is the dialect in which responses tell about the limits. The zero value is StandardHeaders.
	Headers Headers
	// Refusal is the form of a refusal's body. The zero value is Problem.
	Refusal Refusal
	// ProblemBase begins the type of a refusal's problem details, where the draft's names follow. It is
	// that of the draft if empty; AboutBlank leaves the type away.
	ProblemBase string
	// Refuse answers a request that is not admitted, if not nil. Headers are set before, and may be changed.
	Refuse func(http.ResponseWriter, *http.Request, *Admission)
	// Observe is called with every admission before it is acted on. It must be fast and safe for concurrent use.
	Observe func(*http.Request, *Admission)
}

// Guard applies rules to requests. It is immutable and safe for concurrent use.
type Guard struct {
	cfg      Config
	policies []advert
	caps     string // of the Concurrency in RateLimit-Policy, empty if there are none
	settles  bool   // whether a rule depends on the response
}

// NewGuard validates the configuration and returns every fault of it at once.
func NewGuard(cfg Config) (*Guard, error) {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("nethttp: Config."+format, args...)) }
	if cfg.Gate == nil && (len(cfg.Rules) > 0 || cfg.Concurrency == nil) {
		fault("Gate is nil")
	}
	if n := len(cfg.Rules); n == 0 && cfg.Concurrency == nil || n > core.MaxCharges {
		fault("Rules has %d entries: it must have between 1 and %d", n, core.MaxCharges)
	}
	if cfg.MaxDelay < 0 {
		fault("MaxDelay is %v: it must not be negative", cfg.MaxDelay)
	}
	if cfg.BufferBody < 0 {
		fault("BufferBody is %d: it must not be negative", cfg.BufferBody)
	}
	names := make(map[string]int)
	for i, r := range cfg.Rules {
		if r.Policy == nil || r.Policy.Name() == "" {
			fault("Rules[%d].Policy is missing: it must be one that core.NewPolicy made", i)
		} else if first, ok := names[r.Policy.Name()]; ok {
			fault("Rules[%d].Policy is named %q like that of Rules[%d]", i, r.Policy.Name(), first)
		} else {
			names[r.Policy.Name()] = i
		}
		if r.Key == nil {
			fault("Rules[%d].Key is nil: say whose limit it is, such as keyfunc.RemoteIP()", i)
		}
		if r.NoKey > NoKeySkip {
			fault("Rules[%d].NoKey is %d: it must be NoKeyRefuse or NoKeySkip", i, r.NoKey)
		}
	}
	if cfg.Concurrency != nil {
		cfg.Concurrency.check(cfg.Gate, names, fault)
	}
	if cfg.Refusal > OpenAIError {
		fault("Refusal is %d: it must be Problem, PlainText or OpenAIError", cfg.Refusal)
	}
	if cfg.Headers > NoHeaders {
		fault("Headers is %d: it must be StandardHeaders, LegacyEpoch, LegacyDelta or NoHeaders", cfg.Headers)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if cfg.ProblemBase == "" {
		cfg.ProblemBase = draftProblemBase
	}
	cfg.Rules = append([]Rule(nil), cfg.Rules...)
	g := &Guard{cfg: cfg}
	for _, r := range cfg.Rules {
		g.policies = append(g.policies, advertise(r.Policy))
		g.settles = g.settles || r.Settle != nil
	}
	if c := cfg.Concurrency; c != nil {
		own := *c
		own.Caps = append([]Cap(nil), c.Caps...)
		g.cfg.Concurrency, g.caps = &own, own.advertise()
	}
	return g, nil
}

// Admit decides a request, spends what its rules cost and takes its slot. It writes nothing. The adapter sets the headers,
// goes on with the admission's context or refuses, and calls Finish when the handler has returned.
//
// A request that this Guard has admitted already, because it is mounted twice or the request was dispatched anew, is admitted
// and costs nothing more; it takes a slot where that of before is released. That is seen by the request's context. So whatever else is
// called with it, as by a handler that makes many requests of one, is admitted too, unless WithoutAdmission is put around that.
func (g *Guard) Admit(r *http.Request) *Admission {
	a := &Admission{guard: g, outer: admissionOf(r.Context())}
	before := a.before()
	if before != nil && (before.lease == nil || !before.done.Load()) {
		a.decision, a.rules, a.exempt = before.decision, before.rules, true
		return a
	}
	if g.cfg.Disabled != nil && g.cfg.Disabled() || g.cfg.SkipPreflights && preflight(r) {
		a.decision.Allowed, a.exempt = true, true
		return a
	}
	a.admit(r, before != nil)
	if g.cfg.Observe != nil {
		a.observe(r)
	}
	return a
}

func (a *Admission) observe(r *http.Request) {
	over := false
	defer func() {
		if !over { // it panics, and nobody will call Finish
			_ = a.lease.Release(r.Context()) // else its lease ends
			_ = a.paid.Cancel(r.Context())   // else it stays spent
		}
	}()
	a.guard.cfg.Observe(r, a)
	over = true
}

// preflight says whether a request is a CORS preflight (Fetch standard, section 3.3.2).
func preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// Refuse answers a request that was not admitted, as Config.Refuse says or in the form of Config.Refusal.
func (g *Guard) Refuse(w http.ResponseWriter, r *http.Request, a *Admission) {
	if g.cfg.Refuse != nil {
		g.cfg.Refuse(w, r, a)
		return
	}
	writeRefusal(w, r, a)
}
