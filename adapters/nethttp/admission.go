package nethttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Admission is one request's outcome at a Guard.
type Admission struct {
	guard    *Guard
	decision core.Decision
	rules    []int // the rule of each result
	status   int
	err      error
}

// Allowed says whether the request may go on.
func (a *Admission) Allowed() bool { return a.status == 0 }

// Decision is the Gate's decision. It has no results where no rule applied, which admits, or no key could be derived,
// which does not.
func (a *Admission) Decision() *core.Decision { return &a.decision }

// Status is the status to refuse with, 0 if the request may go on: 429 for what the caller spent, 503 where
// Redis is down and a policy is Closed, 400 for a request without a key, 500 for a KeyFunc or Cost that failed.
func (a *Admission) Status() int { return a.status }

// Err is what went wrong, also where a failure mode let the request go on; nil otherwise. A denial is no error.
// It is for logs, and not for responses.
func (a *Admission) Err() error { return a.err }

// Violated is the names of the policies that stand in the way.
func (a *Admission) Violated() []string {
	var names []string
	for i := range a.decision.Len() {
		if r := a.decision.At(i); !r.Allowed && !r.Policy.Shadow() {
			names = append(names, r.Policy.Name())
		}
	}
	return names
}

func (a *Admission) admit(r *http.Request) {
	var inline [4]core.Charge
	charges, err := a.charges(r, inline[:0])
	if err == nil && len(charges) > 0 {
		a.decision, err = a.guard.cfg.Gate.Decide(r.Context(), charges...)
	}
	if a.err = err; err == nil {
		a.err = a.decision.Cause
	}
	if len(charges) == 0 && err == nil {
		a.decision.Allowed = true // no rule applies
	}
	switch {
	case a.decision.Allowed:
	case errors.Is(err, keyfunc.ErrNoKey), errors.Is(err, core.ErrKey):
		a.status = http.StatusBadRequest
	case a.decision.Source == core.SourceClosed, errors.Is(err, core.ErrClosed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		a.status = http.StatusServiceUnavailable
	case a.decision.Len() > 0:
		a.status = http.StatusTooManyRequests
	default:
		a.status = http.StatusInternalServerError
	}
}

// charges derives what the request spends, of the rules that apply to it.
func (a *Admission) charges(r *http.Request, charges []core.Charge) ([]core.Charge, error) {
	var scope string
	for i, rule := range a.guard.cfg.Rules {
		if rule.Skip != nil && rule.Skip(r) {
			continue
		}
		if f := a.guard.cfg.Scope; f != nil && scope == "" {
			var err error
			if scope, err = f(r); err == nil && scope == "" {
				err = keyfunc.ErrNoKey
			}
			if err != nil {
				return nil, fmt.Errorf("nethttp: scope: %w", err)
			}
		}
		part, err := rule.Key(r)
		if err == nil && part == "" {
			err = keyfunc.ErrNoKey
		}
		if errors.Is(err, keyfunc.ErrNoKey) && rule.NoKey == NoKeySkip {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("nethttp: key of %s: %w", rule.Policy.Name(), err)
		}
		var key core.Key
		if scope != "" {
			key, err = core.NewKey(scope, part)
		} else {
			key, err = core.NewKey(part)
		}
		if err != nil {
			return nil, fmt.Errorf("nethttp: key of %s: %w", rule.Policy.Name(), err)
		}
		cost := int64(1)
		if rule.Cost != nil {
			cost = rule.Cost(r)
		}
		charges = append(charges, core.Charge{Policy: rule.Policy, Key: key, Cost: cost})
		a.rules = append(a.rules, i)
	}
	return charges, nil
}

type contextKey struct{}

// WithContext returns a context that carries the admission to FromContext. It is for adapters.
func (a *Admission) WithContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, a)
}

// FromContext returns the decision of the innermost Guard that admitted the request of this context.
func FromContext(ctx context.Context) (core.Decision, bool) {
	a, ok := ctx.Value(contextKey{}).(*Admission)
	if !ok {
		return core.Decision{}, false
	}
	return a.decision, true
}
