package nethttp

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Replay makes a Guard handle each request id once within a window, such as an Idempotency-Key or the
// id of a webhook. The Guard looks for the id after it has decided on everything else, in a round trip
// of its own.
//
// A request whose id was handled is answered with HandledStatus. One whose id another request has, whose
// handler runs, waits for that for at most MaxWait, and is then refused with 409 and Retry-After. If the
// handler fails, the id may come again, and the next of those that wait goes on. What refused requests
// have spent under the rules stays spent.
//
// While Redis does not answer, requests are refused with 503. See core.Once for what it guarantees.
type Replay struct {
	// Once remembers the ids. It is required.
	Once *core.Once
	// ID derives the id of a request, such as keyfunc.Header("Idempotency-Key"). It is required. Ids lie
	// below Config.Scope. Use keyfunc.Join if another part belongs to the id, such as the user.
	ID keyfunc.Func
	// NoID says what happens to a request without an id. The zero value refuses it with 400.
	NoID NoKey
	// MaxWait is how long a request waits for another one with its id. Zero does not wait.
	MaxWait time.Duration
	// Succeeded reports whether a response with this status means that the id is handled. Nil is a
	// status below 400. The status of a handler that panics before it responds is 500.
	Succeeded func(r *http.Request, status int) bool
	// HandledStatus is the status for a request whose id was handled. Zero is 409. Senders of webhooks
	// want one below 300; the answer has no body then.
	HandledStatus int
}

func (p *Replay) check(fault faultFunc) {
	if p.Once == nil || p.Once.Gate() == nil {
		fault("Replay.Once is missing: core.NewOnce must make it")
	}
	if p.ID == nil {
		fault("Replay.ID is nil: say what the id of a request is")
	}
	if p.NoID > NoKeySkip {
		fault("Replay.NoID is %d: it must be NoKeyRefuse or NoKeySkip", p.NoID)
	}
	if p.MaxWait < 0 {
		fault("Replay.MaxWait is %v: it must not be negative", p.MaxWait)
	}
	if s := p.HandledStatus; s != 0 && (s < 200 || s > 599) {
		fault("Replay.HandledStatus is %d: it must be 0 or between 200 and 599", s)
	}
}

// begin begins to handle the id of an admitted request.
func (a *Admission) begin(r *http.Request) (err error) {
	p := a.guard.cfg.Replay
	defer func() { // also if a func panics, so that Finish releases the slot
		a.decision.Allowed = a.decision.Allowed && err == nil && a.status == 0
	}()
	key, ok, err := a.ruleKey("the request's id", p.ID, p.NoID, r)
	if err != nil || !ok {
		return err
	}
	ctx := r.Context()
	if a.lease != nil {
		ctx = a.lease.Context()
	}
	a.attempt, err = p.Once.Begin(ctx, key, p.MaxWait)
	var running *core.FullError
	switch {
	case errors.Is(err, core.ErrDone):
		a.handled, a.status = true, cmp.Or(p.HandledStatus, http.StatusConflict)
	case errors.As(err, &running):
		a.busy, a.status = running.RetryAfter, http.StatusConflict
	default:
		return err
	}
	return nil
}

// end remembers or forgets the id of a request.
func (a *Admission) end(r *http.Request, status int) {
	if a.attempt == nil {
		return
	}
	failed := true
	defer func() {
		if failed { // Succeeded may panic
			_ = a.attempt.Fail(r.Context()) // core.Config.Observe tells of errors
		}
	}()
	succeeded := status < http.StatusBadRequest
	if f := a.guard.cfg.Replay.Succeeded; f != nil {
		succeeded = f(r, status)
	}
	if succeeded {
		failed = false
		_ = a.attempt.Succeed(r.Context()) // it is sent again
	}
}
