package nethttp

import (
	"context"
	"net/http"
	"strconv"

	"github.com/headgate/headgate/core"
)

// Exchange is one request at one Admitter, from Admit to Finish. It is for adapters. What handlers
// read of it is its Admission.
//
// Every Exchange must be finished: otherwise nothing is settled, and the slot stays taken as long as
// the process runs. One goroutine uses an Exchange, and none copies it.
type Exchange struct {
	Admission
	ctx      admittedContext     // of the handler; with a lease, only of those around the guard
	w        http.ResponseWriter // that Writer was given
	sent     int32               // the first final status that the handler has sent, or 0
	finished bool
}

// WriteHeaders sets the headers that state the limits, and on a refusal Cache-Control and either
// Retry-After or, beyond Config.LongestWait, X-Should-Retry. It adds to the lists of an outer Guard
// and keeps a Retry-After that is longer.
func (x *Exchange) WriteHeaders(h http.Header) {
	if x.skipped {
		return
	}
	x.headers = h
	x.guard.cfg.Dialect.WriteHeaders(h, &x.Admission)
	switch {
	case x.Allowed():
		return
	case x.Replayed():
		h.Set("Idempotency-Replayed", "true")
		return
	case x.earlier.lost != "":
		h.Set("Idempotency-Not-Replayed", string(x.earlier.lost))
	}
	h.Set("Cache-Control", "no-store") // RFC 6585, section 4: a cache must not store a 429
	wait, ok := x.RetryAfter()
	if !ok {
		return
	}
	if wait > x.guard.longestWait() || wait == core.Never {
		giveUp(h, x.Status())
		return
	}
	after := max(1, ceilSeconds(wait))
	if outer, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64); err == nil && outer >= after {
		return
	}
	h.Set("Retry-After", strconv.FormatInt(after, 10))
}

// sleepers are the headers that clients read in place of Retry-After: the SDKs of model APIs the
// first, and ky 1.14 the others.
var sleepers = [...]string{
	"Retry-After-Ms", "Ratelimit-Reset", "X-Ratelimit-Reset", "X-Ratelimit-Retry-After", "X-Rate-Limit-Reset",
}

// giveUp has a refused client neither sleep for a long time nor, if it knows the header, retry. A
// Retry-After that others have set stays.
func giveUp(h http.Header, status int) {
	for _, name := range sleepers {
		h.Del(name)
	}
	if status >= http.StatusBadRequest { // ReplayConfig.HandledStatus may be below
		h.Set("X-Should-Retry", "false")
	}
}

// WithContext returns the context for the handler, derived from the context of the admitted
// request. It carries the admission, and it ends with the lease of a slot or of the request's id,
// if there is one.
func (x *Exchange) WithContext(ctx context.Context) context.Context {
	if x.skipped {
		return ctx
	}
	around := &x.ctx
	if around.Context != nil { // each call has its own
		around = new(admittedContext)
	}
	*around = admittedContext{x.classed(ctx), &x.Admission}
	switch {
	case x.attempt != nil: // whose context ends with the lease too
		return &admittedContext{x.classed(x.attempt.work.Context()), &x.Admission}
	case x.lease != nil:
		return &admittedContext{x.lease.Context(), &x.Admission}
	}
	return around
}

// classed returns a context of background work if that is what the request is.
func (x *Exchange) classed(ctx context.Context) context.Context {
	if x.background {
		return core.WithBackground(ctx)
	}
	return ctx
}

// Watches reports whether something depends on the response: a rule, a strike or the request's id.
func (x *Exchange) Watches() bool { return x.settles() || x.attempt != nil }

// settles reports whether the cost of some charge depends on the response.
func (x *Exchange) settles() bool { return x.reservation != nil && x.guard.settles }

// undo gives back what the exchange has taken.
func (x *Exchange) undo(ctx context.Context) {
	if x.attempt != nil {
		_ = x.attempt.work.Fail(ctx) // on failure the id is free when its lease ends
	}
	_ = x.lease.Release(ctx)      // on failure the slot is free when its lease ends
	_ = x.reservation.Cancel(ctx) // on failure the cost stays spent
}
