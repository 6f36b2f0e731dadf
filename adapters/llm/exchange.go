package llm

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/headgate/headgate/adapters/llm/internal/wire"
	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
)

type exchangeKey struct{}

// exchangeOf returns the exchange of a request that a Meter has read, or nil.
func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// exchange is one request and its response. One goroutine uses it.
type exchange struct {
	meter    *Meter
	request  wire.Request
	models   []Model // that the request may be for
	guess    guess
	estimate Usage
	body     []byte             // for the server, until it is replaced
	hides    bool               // the client did not ask for the usage
	outer    *nethttp.Admission // at a guard around the Meter, or nil

	tap      *wire.Tap               // of a response of 2xx
	status   int                     // of the response, 0 before it
	panicked bool                    // the handler has
	late     bool                    // the handler was stopped before it responded or sent a body
	empty    bool                    // the response has no body so far
	ended    bool                    // the Meter has ended the response
	gone     bool                    // the client cannot be written to
	stop     context.CancelCauseFunc // of the handler's context

	paid     []int64 // the units of each budget that the guard has charged
	reserved int64   // tokens of output that are charged
	beyond   int64   // of these, by running charges
	extra    []runningCharge
	indebted bool // a running charge was denied
	ending   *ending

	event   ResponseEvent
	settled []int64 // the units of each budget that its first charge keeps
}

// runningCharge is what a stream was charged beyond its estimate.
type runningCharge struct {
	charges     []core.Charge
	reservation *core.Reservation
}

// errEnded is the cause of the end of a handler's context when the Meter ends its response.
var errEnded = errors.New("llm: the response was ended")

// errDrained is that cause when a client has left and the response takes too long.
var errDrained = errors.New("llm: the response was read on for too long")

// serve lets the handler respond, and finds out what the response used.
func (x *exchange) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	ctx, release := x.context(r.Context())
	defer release()
	inner := r.WithContext(ctx)
	out := newWriter(w, inner, x)
	x.pay(r)
	returned := false
	defer func() {
		r.Pattern = inner.Pattern
		x.panicked = !returned
		x.late = x.late || (x.status == 0 || x.empty) && ctx.Err() != nil
		out.close(returned)
		x.finish(r.Context())
		if x.ended && !returned {
			// A reverse proxy aborts a response whose server it cannot read. This one is whole.
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				panic(p)
			}
		}
	}()
	next.ServeHTTP(out, inner)
	returned = true
}

// context returns the handler's context. With AbortDrain it goes on after the client has left.
func (x *exchange) context(parent context.Context) (context.Context, func()) {
	if x.meter.cfg.Abort != AbortDrain {
		ctx, cancel := context.WithCancelCause(parent)
		x.stop = cancel
		return ctx, func() { cancel(nil) }
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	x.stop = cancel
	unwatch := context.AfterFunc(parent, func() {
		if !left(parent) {
			cancel(context.Cause(parent))
			return
		}
		timer := time.NewTimer(x.meter.cfg.DrainFor)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(errDrained)
		case <-nethttp.LeaseFromContext(parent).Lost():
			cancel(core.ErrLeaseLost)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		unwatch()
		cancel(nil)
	}
}

// left reports whether a request's context has ended because its client has left, not because its
// slot is lost.
func left(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return cause != nil && !errors.Is(cause, core.ErrLeaseLost) && !errors.Is(cause, core.ErrClosed)
}
