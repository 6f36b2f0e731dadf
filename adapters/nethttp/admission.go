package nethttp

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
)

// Admission is the outcome for one request at one Guard.
type Admission struct {
	guard      *Guard
	request    *http.Request // that Admit was given
	headers    http.Header   // that WriteHeaders was given
	charged    []charged     // one for each result of the decision
	decision   core.Decision
	err        error
	*extra           // noExtra, unless the Guard or a Replay around it needs one
	written    int64 // bytes of the response's body
	status     int32
	failed     atomic.Bool // the handler has, whatever its status is
	denied     denialKind
	overloaded bool // the refusal is for an excess of the server and not of the client
	capped     bool // Config.Slot applies
	skipped    bool // nobody decided

	// Memory that most requests need. One allocation holds it all.
	inlineCharged [inlineRules]charged
	inlineHeaders [2]string
}

// charged is what one rule charges a request.
type charged struct {
	by   *charger
	cost int64
}

// charger is a rule of a Guard, or a block.
type charger struct {
	rule   *Rule
	policy *core.Policy // of the rule, or one of its Then
	advert advert
	then   *charger // under the policy that follows when this one denies, or nil
	kept   *charger // of the count of this policy's period, which is kept, or nil
	block  *block   // in place of all others
}

// extra is what few requests need, such as those that a plan or a slot belongs to. See
// Guard.needsExtra.
type extra struct {
	scope       string
	plan        core.Plan             // of Config.Plan
	blocks      []core.Charge         // the first ones, which are of BlockRules
	caps        []semaphore.Cap       // of Config.Slot
	full        *semaphore.FullError  // of the cap that refused the request, or nil
	lease       *semaphore.Lease      // of the slot, or nil
	reservation *core.Reservation     // or nil
	sooner      map[int]time.Duration // by charge, the shortest wait of the policies that its policy follows
	attempt     *attempt              // at the request's id, or nil
	earlier     earlier               // request with the id, if there is one
	write       *writeTimeout         // or nil
	planned     bool                  // Config.Plan was asked
	background  bool                  // as Config.Background says
}

// noExtra stays zero. All requests that need no extra share it.
var noExtra = new(extra)

// inlineRules is for how many rules an Admission has room.
const inlineRules = 2

// Allowed reports whether the request may go on.
func (a *Admission) Allowed() bool { return a.status == 0 }

// Decision returns the Gate's decision. It has no results if no rule applied, which admits the
// request, or if no key could be derived, which does not. It denies a request without a slot even
// if all of its results fit. That of a nil Admission has no results.
func (a *Admission) Decision() *core.Decision {
	if a == nil {
		return new(core.Decision)
	}
	return &a.decision
}

// Status returns the status of the refusal, or 0 if the request may go on:
//
//   - 400 for a missing or ambiguous key and for a body that breaks off
//   - 403 for a request that Config.Deny or a BlockRule.Trap refuses
//   - Config.DenyAllStatus, 403 by default, for a request that a core.DenyAll denies, such as one
//     for what the customer's plan does not include
//   - 409 for a request whose id another one has, which runs
//   - the status of the answer that is repeated to a request whose id was handled; 422 if another
//     request has its id; ReplayConfig.HandledStatus or 409 if there is no answer
//   - 413 for a body that http.MaxBytesReader rejects, and for a cost that is above what a limit
//     ever allows
//   - 429 for what the client itself has spent, for the slots it holds, and for a blocked client
//   - 500 for a Plan, Key or Cost that fails
//   - 503 while Redis is down and a policy is Closed, while Redis is misconfigured, while a Cap
//     with Global is full, while the Gate is closed, and for a request whose context has ended
//
// Config.Dialect may have another status in place of one of these.
func (a *Admission) Status() int { return int(a.status) }

// Replayed reports whether Refuse repeats the answer to an earlier request with the id. An adapter that
// answers refusals in its own way leaves these to Admitter.Refuse. A nil Admission repeats nothing.
func (a *Admission) Replayed() bool { return a != nil && a.earlier.answer != nil }

// StatusText returns the Status in words, such as Too Many Requests, or "" if the request may go
// on.
func (a *Admission) StatusText() string {
	if text := http.StatusText(a.Status()); text != "" || !a.overloaded {
		return text
	}
	return "Overloaded" // a Dialect's own status in place of 503
}

// Err returns what went wrong, or nil. It is set for a refusal that is not a denial, and for a
// request that a failure mode decided. It is for logs and must not appear in a response.
func (a *Admission) Err() error { return a.err }

// Full describes the full cap that refused the request. It is nil if no cap refused it.
func (a *Admission) Full() *semaphore.FullError { return a.full }

// fullCap returns the cap that refused the request.
func (a *Admission) fullCap() *Cap { return &a.guard.cfg.Slot.Caps[a.full.Cap] }

// Lease returns the slot of an admitted request, or nil if it needs none. That of a nil Admission is
// nil.
func (a *Admission) Lease() *semaphore.Lease {
	if a == nil {
		return nil
	}
	return a.lease
}

// Written returns how many bytes of the response's body the handler has written so far. It is for a
// Rule.Settle that counts bytes, and for the other funcs that are called with the status of a response:
// without one of these, the Guard may not see the bytes.
//
// They are those that the Guard sees, so middleware that compresses around it sends fewer. The client of
// a response that breaks off may have received fewer too. A response to HEAD has none, and the bytes on
// a hijacked connection are not counted. A nil Admission has none.
func (a *Admission) Written() int64 {
	if a == nil {
		return 0
	}
	return a.written
}

// outer returns the admission at the Guard around this one, or nil.
func (a *Admission) outer() *Admission { return AdmissionFromContext(a.request.Context()) }

// Fail says that the handler has failed, whatever its status is, so that the id of its request may
// come again; see Replay. It is for handlers, before they return, and for adapters, before
// Exchange.Finish: they call it if the handler panics, and if it has written nothing and its context
// has ended. On a nil Admission, as of a request that a Replay skips, it does nothing.
func (a *Admission) Fail() {
	if a != nil {
		a.failed.Store(true)
	}
}

// AdmissionEvent is what Config.Observe is given: a Guard has decided on a request and has not yet
// acted on that. If the request has an id, so has the Replay around the Guard.
type AdmissionEvent struct {
	// Request is the request.
	Request *http.Request
	// Admission is the outcome. It is valid after Observe too.
	Admission *Admission
}

// EventName returns "admit".
func (*AdmissionEvent) EventName() string { return "admit" }

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
	for a := AdmissionFromContext(ctx); a != nil; a = a.outer() {
		if a.lease != nil {
			return a.lease
		}
	}
	return nil
}
