package nethttp

import (
	"context"

	"github.com/headgate/headgate/core/semaphore"
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

// AdmissionFromContext returns the admission of the innermost Guard that decided the request of
// this context. It is nil if there is none, such as for a request that the Guard skips. In gin and
// echo the handlers around the Guard have it too, also for a refused request.
func AdmissionFromContext(ctx context.Context) *Admission {
	a, _ := ctx.Value(contextKey{}).(*Admission)
	return a
}

// LeaseFromContext returns the slot of the request of this context, at the innermost Guard that has
// a Config.Slot, or nil. A handler whose work goes on after it returns keeps the slot by
// Lease.Detach, and releases what that returns when the work is done.
func LeaseFromContext(ctx context.Context) *semaphore.Lease {
	for a := AdmissionFromContext(ctx); a != nil; a = a.outer {
		if a.lease != nil {
			return a.lease
		}
	}
	return nil
}
