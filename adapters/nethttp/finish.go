package nethttp

import (
	"cmp"
	"context"
	"net/http"

	"github.com/headgate/headgate/internal/requests"
)

// Finish settles the rules that depend on the response, which had this status, and releases the
// slot unless the handler has detached it. An adapter calls it for every admission, with the
// request that the handler was given, when the handler has returned or panicked or the refusal is
// written. The status of a handler that panics before it responds is 500. Later calls do nothing.
//
// Errors go to core.Config.Observe. If settling fails the cost stays spent. If releasing fails, the
// release is sent again; see semaphore.Lease.Release.
//
// The handlers around the guard see what has been written into r, if it is a copy of the request that
// Admit was given: its pattern and path values, forms, trailers and body. So the server removes the
// files of a multipart form.
//
// Finish returns the request for the handlers around the guard, if the framework shows them the
// inner one. Its context carries the admission and does not end with the lease.
func (x *Exchange) Finish(r *http.Request, status int) *http.Request {
	if x.finished {
		return r
	}
	x.finished = true
	requests.Show(x.request, r)
	x.request.Body = r.Body
	if x.skipped || x.reservation == nil && x.lease == nil && x.attempt == nil {
		return r
	}
	ctx := r.Context()
	defer func() { _ = x.lease.Release(ctx) }() // also if a Settle panics
	own := x.ownRequest(r)
	if x.attempt != nil {
		defer x.attempt.end(x, own, status)
	}
	if x.settles() {
		x.settle(own, status)
	}
	if x.lease == nil && x.attempt == nil || x.ctx.Context == nil {
		return r
	}
	return r.WithContext(&x.ctx)
}

// FinishWritten is Finish for an adapter that has given its handler the ResponseWriter of Writer, which
// knows the status. returned says that the handler has returned and did not panic. If it has not, or has
// written nothing and the context that WithContext returned has ended, FinishWritten calls Fail.
func (x *Exchange) FinishWritten(r *http.Request, returned bool) *http.Request {
	if !returned || x.sent == 0 && x.attempt != nil && x.attempt.work.Context().Err() != nil {
		x.Fail()
	}
	if !returned {
		return x.Finish(r, cmp.Or(int(x.sent), http.StatusInternalServerError))
	}
	return x.Finish(r, cmp.Or(int(x.sent), http.StatusOK))
}

// ownRequest returns the request whose context carries the admission of x. In gin and echo, r is that of
// a Guard inside, if there is one.
func (x *Exchange) ownRequest(r *http.Request) *http.Request {
	if ctx := r.Context(); AdmissionFromContext(ctx) != &x.Admission {
		return r.WithContext(&admittedContext{ctx, &x.Admission})
	}
	return r
}

// settle settles what the request was charged. If it was refused although it was charged, what it has spent
// stays spent, except estimates, which go back.
func (x *Exchange) settle(r *http.Request, status int) {
	actual := inside.Spent(x.reservation)
	for i, c := range x.charged {
		switch {
		case c.by.block != nil:
			if strikes := c.by.block.Strikes; strikes != nil && x.Allowed() {
				actual[i] = max(0, strikes(r, status))
			}
		case !x.Allowed():
			if c.by.policy.Hold() > 0 {
				actual[i] = 0
			}
		case c.by.rule.Settle != nil:
			actual[i] = max(0, c.by.rule.Settle(r, status, c.cost))
		}
	}
	_ = x.reservation.Settle(r.Context(), actual...)
	if x.Allowed() {
		x.forget(r, status)
	}
}

// forget forgets the strikes of a client whose response shows that it is honest.
func (x *Exchange) forget(r *http.Request, status int) {
	for i, c := range x.blocks {
		b := x.charged[i].by.block
		if b.Forget == nil || x.decision.At(i).Used == 0 || !b.Forget(r, status) {
			continue
		}
		_ = b.list.Forget(context.WithoutCancel(r.Context()), c.Key) // core.Config.Observe sees errors
	}
}
