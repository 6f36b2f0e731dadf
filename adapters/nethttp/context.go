package nethttp

import (
	"context"

	"github.com/headgate/headgate/core"
)

type contextKey struct{}

// admittedContext is a context that carries an admission.
type admittedContext struct {
	context.Context
	admission *Admission
}

func (c *admittedContext) Value(key any) any {
	if key == (contextKey{}) {
		return c.admission
	}
	return c.Context.Value(key)
}

// WithContext returns the context for the handler, derived from the context of the admitted
// request. It carries the admission, and it ends with the lease of a slot or of the request's id,
// if there is one. It is for adapters.
func (a *Admission) WithContext(ctx context.Context) context.Context {
	if a.skipped {
		return ctx
	}
	first := a.ctx.Context == nil
	if first {
		a.ctx = admittedContext{ctx, a}
	}
	switch {
	case a.attempt != nil: // whose context ends with the lease too
		return &admittedContext{a.attempt.Context(), a}
	case a.lease != nil:
		return &admittedContext{a.lease.Context(), a}
	case !first:
		return &admittedContext{ctx, a}
	}
	return &a.ctx
}

// AdmissionFromContext returns the admission of the innermost Guard that decided the request of
// this context. It is nil if there is none, such as for a request that the Guard skips. In gin and
// echo the handlers around the Guard have it too, also for a refused request.
func AdmissionFromContext(ctx context.Context) *Admission {
	a, _ := ctx.Value(contextKey{}).(*Admission)
	return a
}

// FromContext returns the decision of the innermost Guard that decided the request of this context,
// and whether there is one. It has no results if no rule applied: iterate over Results rather than
// index it.
func FromContext(ctx context.Context) (core.Decision, bool) {
	a := AdmissionFromContext(ctx)
	if a == nil {
		return core.Decision{}, false
	}
	return a.decision, true
}

// LeaseFromContext returns the slot of the request of this context, at the innermost Guard that has
// a Concurrency, or nil. A handler whose work goes on after it returns keeps the slot by
// Lease.Detach, and releases what that returns when the work is done.
func LeaseFromContext(ctx context.Context) *core.Lease {
	for a := AdmissionFromContext(ctx); a != nil; a = a.outer {
		if a.lease != nil {
			return a.lease
		}
	}
	return nil
}
