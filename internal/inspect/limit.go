package inspect

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/headgate/headgate/core"
)

// Limit is how one key stands under one policy.
type Limit struct {
	Policy *core.Policy
	Key    core.Key
	// Algorithm is the limit that holds, of the plan or of the policy.
	Algorithm core.Algorithm
	FromPlan  bool
	// Cost is that of the next request: 1, or core.NoCost under a core.Block, which is asked.
	Cost int64
	// Result is that of a Peek at Cost.
	Result core.Result
	// Then is the name of the policy that decides on the next request in place of this one, which is
	// spent. It is empty if this one decides.
	Then string

	ledger  error  // that has not told what the key has used, or nil
	answers bool   // for another limit, so that it decides only once that is spent
	decides bool   // in place of the one that it answers for
	soonest *Limit // has room first, of those that are spent before it; nil if it answers for none
}

// Blocks reports whether the limit is a core.Block.
func (l *Limit) Blocks() bool {
	_, blocks := l.Algorithm.(core.Block)
	return blocks
}

// Denies reports whether the limit would deny the next request.
func (l *Limit) Denies() bool {
	return !l.Result.Allowed && !l.Policy.Shadow() && l.Then == "" && l.answers == l.decides
}

// counted reports whether the figures are those of the store, and not a failure mode's.
func (l *Limit) counted() bool {
	switch l.Result.Source {
	case core.SourceLocal, core.SourceOpen, core.SourceClosed, core.SourceOverload:
		return false
	}
	return true
}

// isSpent reports whether another limit may answer for this one.
func (l *Limit) isSpent() bool {
	_, denies := l.Algorithm.(core.DenyAll)
	return !l.Result.Allowed && !l.Policy.Shadow() && !denies
}

// Touched reports whether the key has spent something, or its limit is another than the policy's.
func (l *Limit) Touched() bool {
	r := &l.Result
	return r.Known && r.Limit > 0 && (r.Used > 0 || r.Raised > 0 || !r.Allowed)
}

// limits fills in how a subject stands under each policy.
func (i *Inspector) limits(ctx context.Context, s *Subject, plan core.Plan) {
	all := i.candidates(s, plan)
	for some := range slices.Chunk(all, core.MaxCharges) {
		i.peek(ctx, s, some)
	}
	varies := i.varying(ctx, s, plan)
	counts := make(map[string]bool) // by policies: on a key around, and so not on that of the subject
	for _, l := range all {
		name := l.Policy.Name()
		unknown := varies[name] && !l.FromPlan || l.ledger != nil && !counts[name]
		if unknown && !l.Policy.Shadow() {
			if l.Key == s.Key {
				s.Faults = append(s.Faults, &UnknownLimit{Policy: name, Err: l.ledger})
			}
			continue
		}
		known := l.Result.Policy != nil && l.counted()
		counts[name] = counts[name] || known
		if known && (i.cfg.Keys != nil || l.Key == s.Key || l.Touched()) {
			s.Limits = append(s.Limits, l)
		}
	}
}

// candidates returns the limits that may hold for a subject, without Results.
func (i *Inspector) candidates(s *Subject, plan core.Plan) (all []Limit) {
	for _, p := range slices.Concat(i.cfg.Policies, i.implied) {
		if i.kept[p.Name()] {
			continue
		}
		counted := cmp.Or(i.answers[p.Name()], p) // an answer counts on the keys of what it answers for
		for _, key := range i.keys(counted, s.Key) {
			l := i.limitOf(p, key, plan)
			if _, none := l.Algorithm.(core.DenyAll); counted == p || !none {
				all = append(all, l)
			}
		}
	}
	return all
}

func (i *Inspector) keys(p *core.Policy, subject core.Key) []core.Key {
	if i.cfg.Keys != nil {
		return i.cfg.Keys(p, subject)
	}
	return around(subject)
}

// limitOf returns the limit of a key under a policy, without a Result.
func (i *Inspector) limitOf(p *core.Policy, key core.Key, plan core.Plan) Limit {
	l := Limit{Policy: p, Key: key, Algorithm: p.Algorithm(), Cost: 1}
	if plan != nil {
		if own := plan.Algorithm(p.Name()); own != nil {
			l.Algorithm, l.FromPlan = own, true
		}
	}
	if l.Blocks() {
		l.Cost = core.NoCost
	}
	return l
}

// Charge returns the charge of the next request.
func (l *Limit) Charge() core.Charge {
	c := core.Charge{Policy: l.Policy, Key: l.Key, Cost: l.Cost}
	if l.FromPlan {
		c.Limit = l.Algorithm
	}
	return c
}

// peek fills in the results of some limits.
func (i *Inspector) peek(ctx context.Context, s *Subject, some []Limit) {
	charges := make([]core.Charge, len(some))
	for at := range some {
		charges[at] = some[at].Charge()
	}
	d, err := i.cfg.Gate.Peek(ctx, charges...)
	if errors.Is(err, core.ErrCharge) && len(some) > 1 { // one of them has a limit that is no good
		for at := range some {
			i.peek(ctx, s, some[at:at+1])
		}
		return
	}
	if err != nil {
		what := "the limits"
		if len(some) == 1 {
			what = "the limit of " + some[0].Policy.Name()
		}
		s.fault(what, err)
		return
	}
	switch {
	case d.Cause == nil:
		s.wait = max(s.wait, d.RetryAfter())
	case !errors.Is(d.Cause, core.ErrLedger): // otherwise Redis has answered, about all other limits
		s.Outage = d.Cause
	}
	for at, r := range d.Results() {
		l := &some[at]
		if l.Result = r; s.Outage == nil && !l.counted() {
			l.ledger = d.Cause
		}
	}
}

// Limit returns how a key stands under a policy. The error is that of Redis, or of a plan that is
// not known.
func (i *Inspector) Limit(ctx context.Context, p *core.Policy, key core.Key) (Limit, error) {
	s := Subject{Key: key}
	plan, _ := i.plan(ctx, &s)
	some := []Limit{i.limitOf(p, key, plan)}
	if i.peek(ctx, &s, some); s.Outage != nil {
		s.fault("the limit of "+p.Name(), s.Outage)
	}
	if err := some[0].ledger; err != nil {
		s.Faults = append(s.Faults, &UnknownLimit{Policy: p.Name(), Err: err})
	}
	return some[0], errors.Join(s.Faults...)
}
