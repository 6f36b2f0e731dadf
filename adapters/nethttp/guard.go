package nethttp

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Config configures a Guard.
type Config struct {
	// Gate decides. It is required.
	Gate *core.Gate
	// Rules are the limits, 1 to 16. Their policies have different names.
	Rules []Rule
	// Scope, if not nil, is the outermost part of all rules' keys, such as the tenant. Rules in one scope are
	// decided in one script on a Redis Cluster too. A request to which a rule applies and that has no scope is refused
	// with 400.
	Scope keyfunc.Func
	// Headers is the dialect in which responses tell about the limits. The zero value is Draft10.
	Headers Headers
	// ProblemBase begins the type of a refusal's problem details, where the draft's names follow. It is
	// that of the draft if empty; AboutBlank leaves the type away.
	ProblemBase string
	// Refuse answers a request that is not admitted, if not nil. Headers are set before, and may be changed.
	Refuse func(http.ResponseWriter, *http.Request, *Admission)
	// Observe is called with every admission before it is acted on. It must be fast and safe for concurrent use.
	Observe func(*http.Request, *Admission)
}

// Rule is one limit of a Guard.
type Rule struct {
	// Policy is the limit. It is required.
	Policy *core.Policy
	// Key says whose limit it is. It is required: there is no key that is right for everybody.
	Key keyfunc.Func
	// NoKey says what becomes of a request that has no key. The zero value refuses it.
	NoKey NoKey
	// Cost is what a request spends. It is 1 if nil.
	Cost func(*http.Request) int64
	// Skip exempts a request from this rule, if not nil.
	Skip func(*http.Request) bool
}

// NoKey says what becomes of a request from which a rule can derive no key. It never shares a bucket with others.
type NoKey uint8

const (
	// NoKeyRefuse refuses it with 400.
	NoKeyRefuse NoKey = iota
	// NoKeySkip exempts it from the rule.
	NoKeySkip
)

// Guard applies rules to requests. It is immutable and safe for concurrent use.
type Guard struct {
	cfg      Config
	policies []advert
}

// NewGuard validates the configuration and returns every fault of it at once.
func NewGuard(cfg Config) (*Guard, error) {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("nethttp: Config."+format, args...)) }
	if cfg.Gate == nil {
		fault("Gate is nil")
	}
	if n := len(cfg.Rules); n == 0 || n > core.MaxCharges {
		fault("Rules has %d entries: it must have between 1 and %d", n, core.MaxCharges)
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
	if cfg.Headers > NoHeaders {
		fault("Headers is %d: it must be Draft10, LegacyEpoch, LegacyDelta or NoHeaders", cfg.Headers)
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
	}
	return g, nil
}

// Admit decides a request and spends what its rules cost. It writes nothing. The adapter sets the headers, and
// goes on or refuses.
func (g *Guard) Admit(r *http.Request) *Admission {
	a := &Admission{guard: g}
	a.admit(r)
	if g.cfg.Observe != nil {
		g.cfg.Observe(r, a)
	}
	return a
}

// Refuse answers a request that was not admitted, as Config.Refuse says or with problem details.
func (g *Guard) Refuse(w http.ResponseWriter, r *http.Request, a *Admission) {
	if g.cfg.Refuse != nil {
		g.cfg.Refuse(w, r, a)
		return
	}
	writeProblem(w, r, a)
}
