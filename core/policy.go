package core

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
)

// PolicyConfig says what a policy is.
type PolicyConfig struct {
	// Name tells the policy from others on the same key, in Redis, in headers and in reports: 1 to 64 of the
	// characters A-Z a-z 0-9 _ . and -.
	Name string
	// Algorithm is the limit.
	Algorithm Algorithm
	// OnFailure says who decides while Redis does not answer. The zero value is Local.
	OnFailure FailureMode
	// Shadow makes a policy that is evaluated, and charged where it would have allowed, but never stands in the way.
	Shadow bool
}

// Policy is a named limit, validated and ready for use. It is immutable, safe for concurrent use, and meant to be
// made once at start-up. Two policies in one decision have different names.
type Policy struct {
	name      string
	algorithm Algorithm
	limit     algorithm.Limit // nil where the algorithm keeps no state
	denies    bool            // where limit is nil
	onFailure FailureMode
	shadow    bool
	suffix    string // of its keys' names

	lastDenial atomic.Int64 // orders the groups of a decision that takes several round trips
}

// NewPolicy validates the configuration and returns every fault of it at once.
func NewPolicy(cfg PolicyConfig) (*Policy, error) {
	var errs []error
	if err := checkName(cfg.Name, 64); err != nil {
		errs = append(errs, fmt.Errorf("core: PolicyConfig.Name %w", err))
	}
	if cfg.OnFailure > Closed {
		errs = append(errs, fmt.Errorf("core: PolicyConfig.OnFailure is %d: it must be Local, Open or Closed", cfg.OnFailure))
	}
	p := &Policy{name: cfg.Name, algorithm: cfg.Algorithm, onFailure: cfg.OnFailure, shadow: cfg.Shadow}
	if cfg.Algorithm == nil {
		errs = append(errs, errors.New("core: PolicyConfig.Algorithm is nil: it must be a limit, such as PerMinute(100)"))
	} else {
		limit, err := cfg.Algorithm.compile()
		if err != nil {
			errs = append(errs, prefixed("core: PolicyConfig.Algorithm: ", err))
		}
		p.limit = limit
		_, p.denies = cfg.Algorithm.(DenyAll)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if p.limit != nil {
		p.suffix = ":" + p.name + ":" + p.limit.Tag()
	}
	return p, nil
}

// Name is the policy's name.
func (p *Policy) Name() string { return p.name }

// Algorithm is the policy's limit.
func (p *Policy) Algorithm() Algorithm { return p.algorithm }

// Quota is the limit as it is told to clients: how much an untouched key allows at once, and how long an exhausted one
// takes to be whole again, Never if it does not. It is false for Unlimited, which has none.
func (p *Policy) Quota() (limit int64, window time.Duration, ok bool) {
	if p.limit == nil {
		return 0, Never, p.denies
	}
	return p.limit.Capacity(), p.limit.Window(), true
}

// Shadow says whether the policy never stands in the way.
func (p *Policy) Shadow() bool { return p.shadow }

func checkName(name string, longest int) error {
	if name == "" {
		return errors.New("is empty")
	}
	if len(name) > longest {
		return fmt.Errorf("is %d bytes long: it must be at most %d", len(name), longest)
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) {
		return fmt.Errorf("is %q: it may hold only A-Z a-z 0-9 _ . and -", name)
	}
	return nil
}

func plain(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '.' || r == '-'
}
