package nethttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Admission is one request's outcome at a Guard.
type Admission struct {
	guard    *Guard
	outer    *Admission // at the Guard around this one, or nil
	exempt   bool       // from everything that this Guard does
	capped   bool       // by the Concurrency
	scope    string     // of the request, once it is derived
	decision core.Decision
	rules    []int   // the rule of each result
	costs    []int64 // of each result, where some are settled
	status   int
	err      error
	full     *core.FullError
	lease    *core.Lease
	paid     *core.Reservation // nil where nothing is to be settled
	around   context.Context   // of the request as it came
	done     atomic.Bool       // finished
}

// Allowed says whether the request may go on.
func (a *Admission) Allowed() bool { return a.status == 0 }

// Decision is the Gate's decision. It has no results where no rule applied, which admits, or no key could be derived,
// which does not. It denies where there is no slot, also if all results fit.
func (a *Admission) Decision() *core.Decision { return &a.decision }

// Status is the status to refuse with, 0 if the request may go on: 429 for what the caller spent and the slots he holds, 503
// where Redis is down and a policy is Closed, where a Level that is Global has no room, and while the Gate is closed, 400 for a
// request without a key, with an ambiguous key or with half a body, 413 for a body that is too long, 500 for a KeyFunc or Cost that failed.
func (a *Admission) Status() int { return a.status }

// Err is what went wrong, also where a failure mode let the request go on; nil otherwise. A denial is no error.
// It is for logs, and not for responses.
func (a *Admission) Err() error { return a.err }

// Violated is the names of the policies, or of the level, that stand in the way.
func (a *Admission) Violated() []string {
	if a.full != nil {
		if name := a.noRoom().Name; name != "" {
			return []string{name}
		}
		return nil
	}
	var names []string
	for i := range a.decision.Len() {
		if r := a.decision.At(i); !r.Allowed && !r.Policy.Shadow() {
			names = append(names, r.Policy.Name())
		}
	}
	return names
}

// before is what the same Guard has decided on the request already, or nil. A refusal counts until it is answered, so that
// the answer may be dispatched like a request.
func (a *Admission) before() *Admission {
	for o := a.outer; o != nil; o = o.outer {
		if o.guard == a.guard && (o.Allowed() || !o.done.Load()) {
			return o
		}
	}
	return nil
}

// admit decides. A request that has paid already only takes a slot.
func (a *Admission) admit(r *http.Request, paid bool) {
	var (
		inline  [4]core.Charge
		charges []core.Charge
		err     error
	)
	if !paid {
		charges, err = a.charges(r, inline[:0])
	}
	var ask core.SlotRequest
	if c := a.guard.cfg.Concurrency; err == nil && c != nil && (c.Skip == nil || !c.Skip(r)) {
		ask, err = a.ask(r)
		a.capped = err == nil
	}
	derived := err == nil
	if derived && a.waits(charges) {
		err = buffer(r, a.guard.cfg.BufferBody)
	}
	if err == nil {
		err = a.decide(r.Context(), charges, ask)
	}
	switch {
	case a.decision.Allowed:
	case errors.As(err, new(*http.MaxBytesError)):
		a.status = http.StatusRequestEntityTooLarge
	case errors.Is(err, keyfunc.ErrNoKey), errors.Is(err, keyfunc.ErrAmbiguous), errors.Is(err, core.ErrKey), errors.Is(err, errBody):
		a.status = http.StatusBadRequest
	case errors.As(err, &a.full):
		a.status, err = http.StatusTooManyRequests, nil
		if a.noRoom().Global {
			a.status = http.StatusServiceUnavailable
		}
	case !derived, errors.Is(err, core.ErrCharge), errors.Is(err, core.ErrSlotRequest):
		a.status = http.StatusInternalServerError
	case err != nil, a.decision.Source == core.SourceClosed:
		a.status = http.StatusServiceUnavailable
	default:
		a.status = http.StatusTooManyRequests
	}
	if a.err = err; err == nil {
		a.err = a.decision.Cause
	}
}

func (a *Admission) decide(ctx context.Context, charges []core.Charge, ask core.SlotRequest) (err error) {
	cfg := &a.guard.cfg
	switch {
	case cfg.MaxDelay > 0 && len(charges) > 0:
		err = a.delay(ctx, charges, ask)
	case a.capped:
		a.lease, a.decision, err = cfg.Concurrency.admit(ctx, ask, charges)
		a.paid = a.lease.Reservation()
	case len(charges) == 0:
		a.decision.Allowed = true // no rule applies
	case a.guard.settles:
		a.paid, a.decision, err = cfg.Gate.Charge(ctx, charges...)
	default:
		a.decision, err = cfg.Gate.Decide(ctx, charges...)
	}
	return err
}

// delay reserves, waits until that may act, and then takes a slot.
func (a *Admission) delay(ctx context.Context, charges []core.Charge, ask core.SlotRequest) (err error) {
	cfg := &a.guard.cfg
	paid, d, err := cfg.Gate.Reserve(ctx, cfg.MaxDelay, charges...)
	a.decision = d
	if paid == nil {
		return err
	}
	a.decision.Allowed = false
	defer func() {
		if !a.decision.Allowed { // also where Concurrency.OnQueue panics
			_ = paid.Cancel(ctx) // else it stays spent
		}
	}()
	timer := time.NewTimer(paid.Delay())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return fmt.Errorf("nethttp: %w", ctx.Err())
	}
	if a.capped {
		a.lease, err = cfg.Concurrency.acquire(ctx, ask)
	}
	if err == nil {
		a.paid, a.decision.Allowed = paid, true
		return nil
	}
	_ = paid.Cancel(ctx)
	if errors.Is(err, core.ErrFull) { // the client is told what is left without it
		if d, err := cfg.Gate.Peek(ctx, charges...); err == nil {
			a.decision, a.decision.Allowed = d, false
		}
	}
	return err
}

// charges derives what the request spends, of the rules that apply to it.
func (a *Admission) charges(r *http.Request, charges []core.Charge) ([]core.Charge, error) {
	for i, rule := range a.guard.cfg.Rules {
		if rule.Skip != nil && rule.Skip(r) {
			continue
		}
		if err := a.deriveScope(r); err != nil {
			return nil, err
		}
		part, err := derive(rule.Key, r)
		if rule.NoKey == NoKeySkip && errors.Is(err, keyfunc.ErrNoKey) && !errors.Is(err, keyfunc.ErrAmbiguous) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("nethttp: key of %s: %w", rule.Policy.Name(), err)
		}
		var key core.Key
		if a.scope != "" {
			key, err = core.NewKey(a.scope, part)
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
		if a.guard.settles {
			a.costs = append(a.costs, cost)
		}
	}
	return charges, nil
}

// deriveScope sets the scope, if the Guard has one, and does so once.
func (a *Admission) deriveScope(r *http.Request) (err error) {
	if f := a.guard.cfg.Scope; f != nil && a.scope == "" {
		if a.scope, err = derive(f, r); err != nil {
			return fmt.Errorf("nethttp: scope: %w", err)
		}
	}
	return nil
}

// derive is the key of a request, never empty.
func derive(f keyfunc.Func, r *http.Request) (string, error) {
	key, err := f(r)
	if err == nil && key == "" {
		err = keyfunc.ErrNoKey
	}
	return key, err
}

type contextKey struct{}

func admissionOf(ctx context.Context) *Admission {
	a, _ := ctx.Value(contextKey{}).(*Admission)
	return a
}

// WithContext returns the context to go on with, made of that of the request which was admitted: it carries the admission to
// FromContext, and ends with the lease, if there is one. It is for adapters.
func (a *Admission) WithContext(ctx context.Context) context.Context {
	if a.exempt {
		return ctx
	}
	a.around = ctx
	if a.lease != nil {
		ctx = a.lease.Context()
	}
	return context.WithValue(ctx, contextKey{}, a)
}

// WithoutAdmission returns a context without admissions. Requests that are made with it are decided by every Guard they meet: for those
// that one request makes of another, as in a batch, which else are all admitted with the first.
func WithoutAdmission(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, (*Admission)(nil))
}

// FromContext returns the decision of the innermost Guard that admitted the request of this context.
func FromContext(ctx context.Context) (core.Decision, bool) {
	a := admissionOf(ctx)
	if a == nil {
		return core.Decision{}, false
	}
	return a.decision, true
}
