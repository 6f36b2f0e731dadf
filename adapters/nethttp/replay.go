package nethttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
)

// errExpired is the error of a request whose holds have expired while it waited for its id.
var errExpired = errors.New("nethttp: what the request has reserved has expired")

// ReplayConfig configures a Replay.
type ReplayConfig struct {
	// Once remembers the ids. It is required.
	Once *once.Once
	// ID derives the id of a request, such as keyfunc.Header("Idempotency-Key"). It is required. Ids
	// lie below the Guard's Config.Scope. Use keyfunc.Join if another part belongs to the id, such as
	// the user.
	//
	// The method and the route of the request are parts of the id too; see keyfunc.Method and
	// keyfunc.Route. A request that has no route, as around an http.ServeMux, has its path instead.
	ID keyfunc.Func
	// AnyRoute is for ids that are the same on every route: they hold neither method nor route.
	AnyRoute bool
	// NoID says what happens to a request without an id. The zero value refuses it with 400.
	NoID NoKey
	// MaxWait is how long a request waits for another one with its id. Zero does not wait. With a
	// MaxWait, a request that has its id is asked about the Guard's BlockRules again. See
	// Config.MaxDelay for a server with a WriteTimeout.
	MaxWait time.Duration
	// Succeeded reports whether a response with this status means that the id is handled. Nil is a
	// status below 400. It is not asked about a handler that panics, about one that writes nothing
	// after its context has ended, and after Admission.Fail: these have failed.
	Succeeded func(r *http.Request, status int) bool
	// HandledStatus is the status for a request whose id was handled. Then no answer is kept or
	// repeated, and nothing is compared. A sender of webhooks wants one below 300; the response has no
	// body then. There is no Retry-After. Zero repeats the answer.
	HandledStatus int
	// Answers says what is kept of an answer.
	Answers Answers
	// Skip returns true for requests whose ids do not matter. Nil skips none.
	Skip func(*http.Request) bool
}

// Replay handles each id of requests once within a window, such as an Idempotency-Key or the id of a
// webhook. It stands around a Guard, if there is one: it looks for the id after the Guard has
// admitted the request or skipped it, in a round trip of its own.
//
// A Replay repeats the answer of the handler to a request whose id was handled, with the header
// Idempotency-Replayed: true. Another request under the id, by method, host, target or body, is refused with
// 422. An answer that was not kept is not repeated: the request is refused with 409, and the header
// Idempotency-Not-Replayed says why. That is one of 500 and above, one that was flushed, hijacked or
// text/event-stream, one whose body or whose request's body is larger than Answers.MaxBytes, one that
// is shorter than its Content-Length, and one of more than 64 KiB that Redis did not take at once.
//
// While a request is being handled, others with its id wait for at most MaxWait. Then they are refused
// with 409 and Retry-After. If the handler fails, the next request with the id goes on. A refused
// request keeps what it has spent under the rules, also one without an id and one whose answer is
// repeated.
//
// The Replay reads the body of a request, up to Answers.MaxBytes, before the handler begins. If the
// client leaves while the answer is written, writes go on without an error, as far as it is kept.
//
// While Redis does not answer, requests are refused with 503. See once.Once for what it guarantees.
// A Replay is immutable and safe for concurrent use.
type Replay struct {
	guard  *Guard
	cfg    ReplayConfig
	keeper *keeper // nil if answers are not kept
}

// NewReplay returns a Replay around a Guard, or every fault of the configuration at once. The Guard
// answers refusals and observes them too. It is nil if the ids are all that matters.
func NewReplay(guard *Guard, cfg ReplayConfig) (*Replay, error) {
	var errs []error
	fault := faultFunc(func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("nethttp: ReplayConfig."+format, args...))
	})
	if guard == nil {
		guard = skipsAll
	} else if err := guard.Check(); err != nil {
		errs = append(errs, err)
	}
	fault.when(cfg.Once == nil || cfg.Once.Gate() == nil, "Once is missing: once.New must make it")
	fault.when(cfg.ID == nil, "ID is nil: say what the id of a request is")
	cfg.NoID.check("NoID", fault)
	fault.when(cfg.MaxWait < 0, "MaxWait is %v: it must not be negative", cfg.MaxWait)
	s := cfg.HandledStatus
	fault.when(s != 0 && (s < 200 || s > 299) && (s < 400 || s > 599),
		"HandledStatus is %d: it must be 0, or between 200 and 299 or 400 and 599", s)
	p := &Replay{guard: guard, cfg: cfg, keeper: newKeeper(cfg.Answers, fault)}
	if cfg.HandledStatus != 0 {
		p.keeper = nil
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

// skipsAll is the Guard of a Replay without one. It is not noGuard, which refuses everything.
var skipsAll = &Guard{cfg: Config{Dialect: Draft11{}, Skip: func(*http.Request) bool { return true }}}

var errInvalidReplay = errors.New("nethttp: the Replay is nil or zero: NewReplay must make it")

// Check returns an error if NewReplay did not make p.
func (p *Replay) Check() error {
	if p == nil || p.cfg.Once == nil {
		return errInvalidReplay
	}
	return nil
}

// Handler returns a handler that applies the guard, looks for the id, and passes requests to next
// whose id next is to handle. A panic of next goes through. Handler itself panics if NewReplay did
// not make p.
func (p *Replay) Handler(next http.Handler) http.Handler { return handler(p, next) }

// Refuse answers a request that was not admitted: it repeats an answer, or refuses as the Guard does.
func (p *Replay) Refuse(w http.ResponseWriter, r *http.Request, a *Admission) {
	switch {
	case a.Replayed():
		a.earlier.answer.write(w)
	case p.Check() != nil:
		noGuard.Refuse(w, r, a)
	default:
		p.guard.Refuse(w, r, a)
	}
}

// Admit decides on a request as the Guard does, and begins to handle its id. It is for adapters; see
// Admitter.
func (p *Replay) Admit(r *http.Request) *Exchange {
	if err := p.Check(); err != nil {
		x := open(nil, r)
		x.status, x.err = http.StatusInternalServerError, err
		return x
	}
	x := open(p.guard, r)
	if x.extra == noExtra {
		x.extra = new(extra)
	}
	if p.cfg.MaxWait > 0 {
		x.mayWait(r)
	}
	x = x.admit(r)
	if x.Allowed() {
		x.orUndo(r.Context(), func() { p.begin(x, r) })
	}
	x.observe(r)
	return x
}

// begin begins to handle the id of an admitted request, if it has one that matters.
func (p *Replay) begin(x *Exchange, r *http.Request) {
	if p.cfg.Skip != nil && p.cfg.Skip(r) {
		return
	}
	key, known, err := x.ruleKey("the request's id", p.cfg.ID, p.cfg.NoID, r)
	if err == nil && known && !p.cfg.AnyRoute {
		key, err = onRoute(key, r)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", errID, err)
	}
	derived := err == nil
	if derived && !known {
		return
	}
	x.skipped = false
	if derived {
		err = p.attempt(x, r, key)
	}
	if err != nil && x.status == 0 {
		x.decision.Allowed = false
		x.refuse(x.statusOf(derived, err))
		x.err = err
	}
}

// onRoute returns the id with the method and the route of a request as its last part. The first one
// picks the hash slot, and ids of one route should lie in many.
func onRoute(id core.Key, r *http.Request) (core.Key, error) {
	method, _ := methodOf(r) // neither fails
	route, _ := routeOf(r)
	if route == keyfunc.Unmatched {
		route = r.URL.Path
	}
	parts := append(id.Parts(), method+" "+route)
	return core.NewKey(parts[0], parts[1:]...)
}

// attempt takes the id, or refuses a request whose id another one has or had.
func (p *Replay) attempt(x *Exchange, r *http.Request, id core.Key) error {
	ctx := r.Context()
	if x.lease != nil {
		ctx = x.lease.Context()
	}
	print := ""
	if p.keeper != nil {
		var err error
		if print, err = p.keeper.fingerprint(r); err != nil {
			return err
		}
	}
	work, err := p.cfg.Once.Begin(ctx, id, x.atMost(p.cfg.MaxWait))
	var running *semaphore.FullError
	switch {
	case err == nil:
		x.attempt = &attempt{answer: answer{print: print}, replay: p, work: work, id: id}
		if p.cfg.MaxWait > 0 {
			return x.recheck(ctx)
		}
	case errors.Is(err, once.ErrDone):
		if fault := p.repeat(ctx, x, id, print); fault != nil {
			return fault
		}
	case errors.As(err, &running):
		x.earlier.busy = running.RetryAfter
		x.status = http.StatusConflict
	default:
		return err
	}
	x.decision.Allowed = err == nil
	return nil
}

// repeat answers a request whose id was handled.
func (p *Replay) repeat(ctx context.Context, x *Exchange, id core.Key, print string) error {
	kept := &answer{}
	if p.keeper != nil {
		text, err := p.cfg.Once.Answer(ctx, id)
		if err != nil {
			return err
		}
		kept = p.keeper.open(text, id)
	}
	e := &x.earlier
	e.handled = true
	switch {
	case kept.print != "" && kept.print != print:
		e.differs, x.status = true, http.StatusUnprocessableEntity
	case p.keeper == nil || kept.lost != "":
		e.lost, x.status = kept.lost, int32(cmp.Or(p.cfg.HandledStatus, http.StatusConflict))
	default:
		e.answer, x.status = kept, int32(kept.status)
	}
	return nil
}

// recheck asks again, after a wait for the id, whether the client is blocked, and looks whether
// what the request holds has expired.
func (x *Exchange) recheck(ctx context.Context) error {
	d, err := x.askBlocks(ctx)
	if err == nil && d.Allowed && !x.reservation.Kept() {
		err = errExpired
	}
	if err == nil && d.Allowed {
		return nil
	}
	_ = x.attempt.work.Fail(ctx) // on failure the id is free when its lease ends
	x.attempt = nil
	if err == nil {
		x.decision = d
		x.refuse(x.statusOf(true, nil))
	}
	return err
}
