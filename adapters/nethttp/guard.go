package nethttp

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/hub"
)

// Guard applies rules and caps to requests. NewGuard, Limit, Concurrency, Queue and Quotas make one;
// one that is nil or zero refuses every request with 500. A Guard is immutable and safe for concurrent
// use.
type Guard struct {
	cfg      Config
	blocks   []*charger
	rules    []*charger
	policies string // RateLimit-Policy of most requests without caps

	settles    bool // something depends on the response, or is held until there is one
	follows    bool // a rule has a Then
	keeps      bool // a rule keeps the counts of periods
	beside     bool // there are blocks or caps, requests may wait, or their bodies are read
	needsExtra bool // requests write into an extra of their own
}

var inside = core.Inside(hub.Pass{})

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
	for i := range cfg.Rules {
		g.useRule(&cfg.Rules[i])
		policies = appendMember(policies, g.rules[i].advert.member)
	}
	for _, rule := range cfg.Blocks {
		list, err := core.NewBlocklist(cfg.Gate, rule.Policy)
		if err != nil {
			return nil, fmt.Errorf("nethttp: Config.Blocks: %w", err)
		}
		inside.State(cfg.Gate, rule.Policy, false)
		g.blocks = append(g.blocks, &charger{block: &block{rule, list}})
		g.settles = g.settles || rule.Strikes != nil || rule.Forget != nil
	}
	if cfg.Slot != nil {
		slot := *cfg.Slot
		slot.Caps = slices.Clone(slot.Caps)
		g.cfg.Slot = &slot
	}
	g.policies = string(policies)
	g.foresee()
	return g, nil
}

// foresee notes what requests need not be asked one by one.
func (g *Guard) foresee() {
	cfg := &g.cfg
	g.beside = len(g.blocks) > 0 || cfg.Slot != nil || cfg.MaxDelay > 0 || cfg.Background != nil || g.readsBody()
	g.needsExtra = g.beside || g.settles || g.follows || cfg.Scope != nil || cfg.Plan != nil || cfg.Reconsider != nil
}

// useRule adds a rule.
func (g *Guard) useRule(r *Rule) {
	g.rules = append(g.rules, chargerOf(r))
	g.follows = g.follows || len(r.Then) > 0
	g.keeps = g.keeps || r.kept != nil
	g.settles = g.settles || r.Settle != nil || r.Policy.Hold() > 0
	inside.State(g.cfg.Gate, r.Policy, g.cfg.Plan != nil)
	for _, p := range r.Then {
		g.settles = g.settles || p.Hold() > 0
		if g.cfg.Plan == nil { // otherwise a Gate states it once a plan names it
			inside.State(g.cfg.Gate, p, false)
		}
	}
}

var errInvalidGuard = errors.New(
	"nethttp: the Guard is nil or zero: NewGuard, Limit, Concurrency, Queue or Quotas must make it")

// Check returns an error if g is nil or zero.
func (g *Guard) Check() error {
	if g == nil || g.cfg.Dialect == nil { // NewGuard sets one
		return errInvalidGuard
	}
	return nil
}

// noGuard stands for one that is nil or zero.
var noGuard = &Guard{cfg: Config{Dialect: Draft11{}}}

// longestWait returns the longest wait that a response states.
func (g *Guard) longestWait() time.Duration { return cmp.Or(g.cfg.LongestWait, 24*time.Hour) }

// Refuse answers a request that was not admitted, by Config.Refuse or in Config.Dialect.
func (g *Guard) Refuse(w http.ResponseWriter, r *http.Request, a *Admission) {
	if g.Check() != nil {
		g = noGuard
	}
	switch {
	case a.status < http.StatusMultipleChoices: // ReplayConfig.HandledStatus
		w.WriteHeader(a.Status())
	case g.cfg.Refuse != nil:
		g.cfg.Refuse(w, r, a)
	default:
		g.cfg.Dialect.WriteRefusal(w, r, a)
	}
}
