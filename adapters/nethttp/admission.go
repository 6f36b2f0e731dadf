package nethttp

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Admission is the outcome for one request at one Guard.
type Admission struct {
	guard       *Guard
	outer       *Admission // at the Guard around this one, or nil
	skipped     bool       // the Guard decided nothing
	capped      bool       // the Concurrency applies
	overloaded  bool       // the refusal is for an excess of the server and not of the client
	scope       string     // of the request, once it is derived
	charged     []charged  // one for each result of the decision
	blockKeys   []core.Key // of the first of them, which are of BlockRules
	levels      []core.Level
	decision    core.Decision
	status      int
	err         error
	full        *core.FullError
	lease       *core.Lease
	reservation *core.Reservation // nil if nothing can be settled
	attempt     *core.Attempt     // at the request's id, or nil
	handled     bool              // the request's id was handled before
	busy        time.Duration     // another request with the id runs, and may for that time
	failed      atomic.Bool       // the handler has, whatever its status is
	ctx         admittedContext   // of the handler; with a lease, only of those around the guard
	seen        response          // what the handler has responded
	finished    atomic.Bool
	deciding    context.Context // with a snapshot; nil if the guard needs none

	// Memory that most requests need. One allocation holds it all.
	inlineCharged [inlineRules]charged
	inlineHeaders [2]string
}

// inlineRules is for how many rules an Admission has room.
const inlineRules = 2

// Allowed reports whether the request may go on.
func (a *Admission) Allowed() bool { return a.status == 0 }

// Decision returns the Gate's decision. It has no results if no rule applied, which admits the
// request, or if no key could be derived, which does not. It denies a request without a slot even
// if all of its results fit.
func (a *Admission) Decision() *core.Decision { return &a.decision }

// Status returns the status of the refusal, or 0 if the request may go on:
//
//   - 400 for a missing or ambiguous key and for a body that breaks off
//   - 403 for a request that Config.Deny or a BlockRule.Trap refuses
//   - 409 for a request whose id another one has, which runs; Replay.HandledStatus for one whose id
//     was handled
//   - 413 for a body that http.MaxBytesReader rejects
//   - 429 for what the client itself has spent, for the slots it holds, and for a blocked client
//   - 500 for a Key, Limit, Cost or Priority that fails
//   - 503 while Redis is down and a policy is Closed, while Redis is misconfigured, while a Cap
//     with Global is full, while the Gate is closed, and for a request whose context has ended
//
// Config.Dialect may have another status in place of one of these.
func (a *Admission) Status() int { return a.status }

// StatusText returns the Status in words, such as Too Many Requests, or "" if the request may go
// on.
func (a *Admission) StatusText() string {
	if text := http.StatusText(a.status); text != "" || !a.overloaded {
		return text
	}
	return "Overloaded" // a Dialect's own status in place of 503
}

// Err returns what went wrong, or nil. It is set for a refusal that is not a denial, and for a
// request that a failure mode decided. It is for logs and must not appear in a response.
func (a *Admission) Err() error { return a.err }

// Violated returns the names of the policies that deny the request, or the name of the cap that is
// full.
func (a *Admission) Violated() []string {
	if a.full != nil {
		if name := a.fullCap().Name; name != "" {
			return []string{name}
		}
		return nil
	}
	var names []string
	for d := range a.Denials() {
		names = append(names, d.Policy.Name())
	}
	return names
}

// Full describes the full cap that refused the request. It is nil if no cap refused it.
func (a *Admission) Full() *core.FullError { return a.full }

// Lease returns the slot of an admitted request, or nil if it needs none.
func (a *Admission) Lease() *core.Lease { return a.lease }

// admit decides. An exempt request is charged nothing and takes no slot.
func (a *Admission) admit(r *http.Request, exempt bool) {
	var (
		charges []core.Charge
		slot    core.SlotRequest
		err     error
		caught  bool
		room    [inlineRules]core.Charge
	)
	defer a.snapshot(r)()
	if !exempt {
		charges, caught, err = a.deriveAll(r, room[:0])
	}
	if c := a.guard.cfg.Concurrency; err == nil && !caught && !exempt &&
		c != nil && (c.Skip == nil || !c.Skip(r)) {
		slot, err = a.slotRequest(r)
		a.capped = err == nil
	}
	var id replayID
	if a.guard.cfg.Replay != nil && err == nil && !caught {
		id, err = a.deriveID(r)
	}
	derived := err == nil
	if derived && !caught && a.mayWait(charges) {
		err = bufferBody(r, a.guard.cfg.BufferBody)
	}
	if err == nil && !caught {
		err = a.decide(a.context(r), charges, slot)
		if err != nil && !a.decision.Allowed {
			err = a.explain(charges, err)
		}
	}
	if a.decision.Allowed && id.known {
		err = a.begin(r, id)
	}
	if !a.decision.Allowed && a.status == 0 {
		if errors.As(err, &a.full) {
			err = nil
		}
		a.refuse(a.statusOf(derived, err))
		a.strikeDenied(r, charges)
	}
	if a.err = err; err == nil {
		a.err = a.decision.Cause
	}
}

// refuse refuses the request with a status, or the one that the dialect has in its place.
func (a *Admission) refuse(status int) {
	a.overloaded = status == http.StatusServiceUnavailable
	a.status = a.guard.dialect().Status(status)
}

// statusOf returns the status of a refusal. derived says that the charges and the slot could be
// derived from the request.
func (a *Admission) statusOf(derived bool, err error) int {
	switch {
	case a.full != nil && a.fullCap().Global:
		return http.StatusServiceUnavailable
	case a.full != nil:
		return http.StatusTooManyRequests
	case errors.Is(err, errLimit):
		return http.StatusInternalServerError
	case errors.As(err, new(*http.MaxBytesError)):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, keyfunc.ErrNoKey), errors.Is(err, keyfunc.ErrAmbiguous),
		errors.Is(err, core.ErrKey), errors.Is(err, errBody):
		return http.StatusBadRequest
	case !derived, errors.Is(err, core.ErrCharge), errors.Is(err, core.ErrSlotRequest):
		return http.StatusInternalServerError
	case err != nil, a.decision.Source == core.SourceClosed,
		a.decision.Source == core.SourceOverload:
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}
