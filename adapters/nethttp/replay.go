package nethttp

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Replay makes a Guard handle each id of requests once within a window, such as an Idempotency-Key
// or the id of a webhook. The Guard looks for the id after its rules and caps have admitted the
// request, in a round trip of its own.
//
// The Guard answers a request whose id was handled with HandledStatus. While a request is being
// handled, others with its id wait for at most MaxWait. The Guard then refuses them with 409 and
// Retry-After. If the handler fails, the next request with the id goes on. A refused request keeps
// what it has spent under the rules.
//
// While Redis does not answer, requests are refused with 503. See core.Once for what it guarantees.
type Replay struct {
	// Once remembers the ids. It is required.
	Once *core.Once
	// ID derives the id of a request, such as keyfunc.Header("Idempotency-Key"). It is required. Ids
	// lie below Config.Scope. Use keyfunc.Join if another part belongs to the id, such as the user.
	ID keyfunc.Func
	// NoID says what happens to a request without an id. The zero value refuses it with 400.
	NoID NoKey
	// MaxWait is how long a request waits for another one with its id. Zero does not wait.
	MaxWait time.Duration
	// Succeeded reports whether a response with this status means that the id is handled. Nil is a
	// status below 400. It is not asked about a handler that panics, about one that writes nothing
	// after its context has ended, and after Admission.Fail: these have failed.
	Succeeded func(r *http.Request, status int) bool
	// HandledStatus is the status for a request whose id was handled. Zero means 409. A sender of
	// webhooks wants one below 300; the response has no body then. There is no Retry-After.
	HandledStatus int
}

func (p *Replay) check(fault faultFunc) {
	if p.Once == nil || p.Once.Gate() == nil {
		fault("Replay.Once is missing: core.NewOnce must make it")
	}
	if p.ID == nil {
		fault("Replay.ID is nil: say what the id of a request is")
	}
	p.NoID.check("Replay.NoID", fault)
	if p.MaxWait < 0 {
		fault("Replay.MaxWait is %v: it must not be negative", p.MaxWait)
	}
	if s := p.HandledStatus; s != 0 && (s < 200 || s > 599) {
		fault("Replay.HandledStatus is %d: it must be 0 or between 200 and 599", s)
	}
}

// replayID is the id of a request, if it has one.
type replayID struct {
	key   core.Key
	known bool
}

// errID is wrapped by the errors of a Replay.ID.
var errID = errors.New("nethttp: id")

func (a *Admission) deriveID(r *http.Request) (id replayID, err error) {
	p := a.guard.cfg.Replay
	id.key, id.known, err = a.ruleKey("the request's id", p.ID, p.NoID, r)
	if err != nil {
		err = fmt.Errorf("%w: %w", errID, err)
	}
	return id, err
}

// begin begins to handle the id of an admitted request.
func (a *Admission) begin(r *http.Request, id replayID) (err error) {
	p, ctx := a.guard.cfg.Replay, r.Context()
	if a.lease != nil {
		ctx = a.lease.Context()
	}
	a.decision.Allowed = false
	returned := false
	defer func() {
		if !returned { // a hook of the client panics, so the adapter cannot call Finish
			a.undo(r)
		}
	}()
	a.attempt, err = p.Once.Begin(ctx, id.key, p.MaxWait)
	returned = true
	var running *core.FullError
	switch {
	case err == nil:
		a.decision.Allowed = true
	case errors.Is(err, core.ErrDone):
		a.handled, a.status = true, cmp.Or(p.HandledStatus, http.StatusConflict)
		return nil
	case errors.As(err, &running):
		a.busy, a.status = running.RetryAfter, http.StatusConflict
		return nil
	}
	return err
}

// Fail says that the handler has failed, whatever its status is, so that the id of its request may
// come again; see Replay. It is for handlers, before they return, and for adapters, before Finish:
// they call it if the handler panics, and if it has written nothing and its context has ended.
func (a *Admission) Fail() { a.failed.Store(true) }

// end remembers or forgets the id of a request.
func (a *Admission) end(r *http.Request, status int) {
	if a.attempt == nil {
		return
	}
	defer func() { _ = a.attempt.Fail(r.Context()) }() // does nothing after Succeed
	succeeded := status < http.StatusBadRequest
	if f := a.guard.cfg.Replay.Succeeded; f != nil {
		succeeded = f(r, status)
	}
	if succeeded && !a.failed.Load() {
		_ = a.attempt.Succeed(r.Context()) // it is sent again
	}
}
