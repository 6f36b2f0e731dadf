package nethttp

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/requests"
)

// Handler returns a handler that applies the guard and passes admitted requests to next. A panic of
// next goes through. Handler itself panics if neither NewGuard nor Limit made g.
func (g *Guard) Handler(next http.Handler) http.Handler { return handler(g, next) }

// Admit decides on a request, spends the costs of its rules and takes its slot. It writes nothing.
// It is for adapters; see Admitter.
//
// Admit decides every request that it is given. A Guard that is mounted twice counts a request twice,
// and so does a router that dispatches it again. Requests that a handler makes out of its own, such
// as the parts of a batch, count each.
func (g *Guard) Admit(r *http.Request) *Exchange {
	x := open(g, r).admit(r)
	x.observe(r)
	return x
}

// admit decides, and tells nobody yet. It returns x, or the exchange of a request that was reconsidered.
func (x *Exchange) admit(r *http.Request) *Exchange {
	switch cfg := &x.guard.cfg; {
	case x.guard == noGuard:
		x.status, x.err = http.StatusInternalServerError, errInvalidGuard
	case cfg.Skip != nil && cfg.Skip(r):
		x.decision.Allowed, x.skipped = true, true
	case cfg.Deny != nil && cfg.Deny(r):
		x.refuse(http.StatusForbidden)
	default:
		x.decide(r)
		if cfg.Reconsider != nil && x.deniedByRule() && cfg.Reconsider(r, &x.Admission) {
			write := x.write
			x = open(x.guard, r)
			x.write = write
			x.decide(r)
		}
		if len(x.blocks) > 0 && x.deniedByRule() {
			x.strike(r)
		}
	}
	return x
}

// open returns the exchange of a request at a Guard, or at none.
func open(g *Guard, r *http.Request) *Exchange {
	if g == nil || g.cfg.Dialect == nil {
		g = noGuard
	}
	requests.ExpectTrailers(r)
	x := &Exchange{Admission: Admission{guard: g, request: r, extra: noExtra}}
	if g.needsExtra {
		x.extra = new(extra)
	}
	x.charged = x.inlineCharged[:0]
	return x
}

// observe tells of the outcome.
func (x *Exchange) observe(r *http.Request) {
	if x.guard.cfg.Observe != nil && !x.skipped {
		x.orUndo(r.Context(), func() {
			x.guard.cfg.Observe(r.Context(), &AdmissionEvent{Request: r, Admission: &x.Admission})
		})
	}
}

// orUndo calls f, and gives back what the exchange has taken if f panics: a func of the configuration
// does, and the adapter cannot call Finish.
func (x *Exchange) orUndo(ctx context.Context, f func()) {
	returned := false
	defer func() {
		if !returned {
			x.undo(ctx)
		}
	}()
	f()
	returned = true
}

// decide decides on a request by the rules, and by what the Guard has besides.
func (x *Exchange) decide(r *http.Request) {
	var room [inlineRules]core.Charge
	if x.guard.beside {
		x.decideBeside(r, room[:0])
		return
	}
	charges, err := x.deriveRules(r, room[:0], false)
	if err != nil {
		x.conclude(nil, false, err)
		return
	}
	x.conclude(charges, true, x.spend(r.Context(), charges, nil))
}

// decideBeside decides on a request by the blocks, the rules and the caps. The request may have to
// wait, and its body may be read.
func (x *Exchange) decideBeside(r *http.Request, room []core.Charge) {
	cfg := &x.guard.cfg
	if cfg.MaxDelay > 0 || cfg.Slot != nil && cfg.Slot.MaxWait > 0 {
		x.mayWait(r)
	}
	charges, caught, err := x.deriveCharges(r, room)
	if caught {
		x.conclude(nil, true, err)
		return
	}
	var slot semaphore.Request
	if err == nil {
		err = x.deriveSlot(r, charges, &slot)
	}
	derived := err == nil
	if derived {
		err = x.buffer(r, charges)
	}
	if err != nil {
		x.conclude(nil, derived, err)
		return
	}
	x.background = cfg.Background != nil && cfg.Background(r)
	ctx := x.classed(r.Context())
	x.conclude(charges, true, x.spend(ctx, charges, &slot))
}

// conclude sets the status and the error of the outcome of deciding these charges. derived says that
// the charges and the slot could be derived from the request.
func (x *Exchange) conclude(charges []core.Charge, derived bool, err error) {
	if !x.decision.Allowed && x.status == 0 {
		err = explain(charges, err)
		if x.capped && errors.As(err, &x.full) {
			err = nil
		}
		x.refuse(x.statusOf(derived, err))
	}
	x.err = cmp.Or(err, x.decision.Cause)
}

// Admitter admits requests or refuses them: a *Guard, or a *Replay around one. Every adapter takes
// one.
//
// An adapter calls Admit, Exchange.WriteHeaders, and then either the next handler with the context
// that Exchange.WithContext and the ResponseWriter that Exchange.Writer returns, or Refuse. In both
// cases it calls Exchange.Finish or FinishWritten at the end, also if WriteHeaders or Refuse panics:
// both call funcs of the configuration.
type Admitter interface {
	// Check returns an error if no constructor made it, as for a nil *Guard. An adapter panics with
	// it when it is mounted, so that the mistake is found before the first request.
	Check() error
	// Admit decides on a request, spends the costs of its rules and takes its slot. It writes
	// nothing.
	Admit(r *http.Request) *Exchange
	// Refuse answers a request that was not admitted.
	Refuse(w http.ResponseWriter, r *http.Request, a *Admission)
	// Handler returns a handler that passes admitted requests to next.
	Handler(next http.Handler) http.Handler
}

// handler passes the requests that g admits to next.
func handler(g Admitter, next http.Handler) http.Handler {
	if err := g.Check(); err != nil {
		panic(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := g.Admit(r)
		if !x.Allowed() {
			defer func() { x.Finish(r, x.Status()) }()
			x.WriteHeaders(w.Header())
			g.Refuse(w, r, &x.Admission)
			return
		}
		inner := r.WithContext(x.WithContext(r.Context()))
		returned := false
		defer func() { x.FinishWritten(inner, returned) }()
		x.WriteHeaders(w.Header())
		next.ServeHTTP(x.Writer(w), inner)
		returned = true
	})
}
