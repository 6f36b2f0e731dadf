package nethttp

import "net/http"

// Finish settles the rules that depend on the response, which had this status, and releases the
// slot unless the handler has detached it. An adapter calls it for every admission, with the
// request that the handler was given, when the handler has returned or panicked or the refusal is
// written. The status of a handler that panics before it responds is 500. Later calls do nothing.
//
// Errors go to core.Config.Observe. If settling fails the cost stays spent. If releasing fails, the
// release is sent again; see core.Lease.Release.
//
// Finish returns the request for the handlers around the guard, if the framework shows them the
// inner one. Its context carries the admission and does not end with the lease.
func (a *Admission) Finish(r *http.Request, status int) *http.Request {
	if a.skipped || a.finished.Swap(true) ||
		a.reservation == nil && a.lease == nil && a.attempt == nil {
		return r
	}
	ctx := r.Context()
	defer func() { _ = a.lease.Release(ctx) }() // also if a Settle panics
	defer a.end(r, status)
	switch {
	case !a.settles():
	case a.Allowed():
		a.settle(r, status)
	default:
		a.keepSpent(r)
	}
	if a.lease == nil && a.attempt == nil || a.ctx.Context == nil {
		return r
	}
	return r.WithContext(&a.ctx)
}

// settles reports whether the cost of some charge depends on the response.
func (a *Admission) settles() bool { return a.reservation != nil && a.guard.settles }

func (a *Admission) settle(r *http.Request, status int) {
	actual := make([]int64, len(a.charged))
	for i, c := range a.charged {
		actual[i] = c.cost
		if b := a.blockOf(i); b != nil {
			if b.Strikes != nil {
				actual[i] = max(0, b.Strikes(r, status))
			}
			continue
		}
		if settle := a.guard.cfg.Rules[c.rule].Settle; settle != nil {
			actual[i] = max(0, settle(r, status, c.cost))
		}
	}
	_ = a.reservation.Settle(r.Context(), actual...)
	a.forget(r, status)
}

// keepSpent settles a request that was refused although it was charged: what it has spent stays
// spent, except estimates, which go back.
func (a *Admission) keepSpent(r *http.Request) {
	actual := make([]int64, len(a.charged))
	for i, c := range a.charged {
		if c.rule >= 0 && a.guard.cfg.Rules[c.rule].Policy.Hold() == 0 {
			actual[i] = c.cost
		}
	}
	_ = a.reservation.Settle(r.Context(), actual...)
}
