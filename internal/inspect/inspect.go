// Package inspect answers what an operator asks of a Gate: how a subject stands under each policy
// and each semaphore, and why its next request would be denied. It also changes that. The page of
// package admin and the command headgate share it.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/plans"
)

// Config says under what a subject is looked up.
type Config struct {
	Gate       *core.Gate
	Policies   []*core.Policy
	Semaphores []*semaphore.Semaphore
	// Keys returns the keys on which a subject's requests count under a policy. If it is nil, those
	// are the subject's own, and of the keys around it, such as that of its tenant, the ones that have
	// spent something under the policy.
	Keys func(p *core.Policy, subject core.Key) []core.Key
	// Plans is asked for the plan and the override of a subject. It may be nil.
	Plans *plans.Book
	// Tenants returns the names by which Plans knows a subject, outermost first. If it is nil, that is
	// the outermost part of the key. It may return none.
	Tenants func(subject core.Key) []string
	// Plan returns the limits of a subject. If it is nil, that is the plan of its Tenants.
	Plan func(ctx context.Context, subject core.Key) (core.Plan, error)
	// Partial says that Plan may not know all limits of a subject. One that it does not name, under a
	// policy whose charges have had limits of their own, is not known then.
	Partial bool
}

// Inspector looks up subjects and changes them. It is safe for concurrent use.
type Inspector struct {
	cfg Config
	hub *hub.Hub
	// answers are the policies that hold when another is spent, by their names, with that one.
	answers map[string]*core.Policy
	implied []*core.Policy  // the answers that the configuration does not have
	kept    map[string]bool // names of policies that count ended periods, on keys of their own
}

// New returns an Inspector, or every fault of the configuration at once. Faults name the fields of
// a struct that is called Config in a package of the given name.
func New(cfg Config, of string) (*Inspector, error) {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: Config."+format, append([]any{of}, args...)...))
	}
	lent := core.Inside(hub.Pass{}).Of(cfg.Gate)
	if lent == nil {
		fault("Gate is missing")
	}
	names := make(map[string]bool)
	for i, p := range cfg.Policies {
		switch {
		case p == nil || p.Algorithm() == nil:
			fault("Policies[%d] is missing, or not made by core.NewPolicy", i)
		case names[p.Name()]:
			fault("Policies[%d] has the name of another, %s", i, p.Name())
		default:
			names[p.Name()] = true
		}
	}
	clear(names)
	for i, s := range cfg.Semaphores {
		switch {
		case s == nil:
			fault("Semaphores[%d] is nil", i)
		case s.Gate() != cfg.Gate:
			fault("Semaphores[%d], %s, has another Gate", i, s.Name())
		case names[s.Name()]:
			fault("Semaphores[%d] has the name of another, %s", i, s.Name())
		default:
			names[s.Name()] = true
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	i := &Inspector{cfg: cfg, hub: lent, answers: make(map[string]*core.Policy), kept: make(map[string]bool)}
	for _, p := range cfg.Policies {
		i.addAnswers(p)
	}
	return i, nil
}

// addAnswers adds the policies that a plan may name for one that is spent.
func (i *Inspector) addAnswers(p *core.Policy) {
	i.kept[plans.KeptName(p.Name())] = true
	for _, name := range plans.Then(p.Name()) {
		i.kept[plans.KeptName(name)] = true
		i.answers[name] = p
		if i.Policy(name) != nil {
			continue
		}
		answer, err := core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: core.DenyAll{}, Unit: p.Unit()})
		if err == nil { // otherwise the name is too long, and no plan has it
			i.implied = append(i.implied, answer)
		}
	}
}

// Policy returns the policy of a name, or nil.
func (i *Inspector) Policy(name string) *core.Policy {
	for _, all := range [][]*core.Policy{i.cfg.Policies, i.implied} {
		for _, p := range all {
			if p.Name() == name {
				return p
			}
		}
	}
	return nil
}

// Semaphore returns the semaphore of a name, or nil.
func (i *Inspector) Semaphore(name string) *semaphore.Semaphore {
	for _, s := range i.cfg.Semaphores {
		if s.Name() == name {
			return s
		}
	}
	return nil
}

// now returns the time to which waits are added: that of this process, or of the Gate in memory.
func (i *Inspector) now() time.Time {
	if i.hub.Clock != nil {
		return time.UnixMicro(i.hub.Clock())
	}
	return time.Now()
}

// Subject is how a key stands.
type Subject struct {
	Key core.Key
	// At is when the answers had come.
	At      time.Time
	Tenants []Tenant
	Limits  []Limit
	Slots   []Slots
	// Stated are the policies that programs state, or nil if that is not known.
	Stated []Stated
	// Outage is why failure modes decide meanwhile on limits that are missing, or nil.
	Outage error
	// Faults are why parts of the answer are missing.
	Faults []error
	Why    Verdict

	wait time.Duration // after which all Limits admit the next request
}

// Lookup returns how a subject stands. The error is that of ctx, or wraps core.ErrKey or
// core.ErrClosed. Other errors are among the Faults of the Subject, beside what could be found out.
func (i *Inspector) Lookup(ctx context.Context, key core.Key) (*Subject, error) {
	if key == (core.Key{}) {
		return nil, fmt.Errorf("%w: it is missing", core.ErrKey)
	}
	s := &Subject{Key: key}
	if plan, known := i.plan(ctx, s); known {
		i.limits(ctx, s, plan)
	}
	i.slots(ctx, s)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	if i.hub.Closed() {
		return nil, core.ErrClosed
	}
	s.At = i.now()
	s.Why = s.verdict()
	return s, nil
}
