package llm

import (
	"context"
	"errors"
	"net/http"

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
	replaced string // the model that the client asked for, if there is another one now
	pricing
	guess    guess
	estimate Usage
	body     *heldBody          // for the server
	whole    []byte             // the body until the request is admitted, for Config.Downgrade
	hides    bool               // the client did not ask for the usage that the server sends
	outer    *nethttp.Admission // of a guard around the Meter, or nil

	tap      *wire.Tap               // of a response of 2xx
	status   int                     // of the response, 0 before it
	panicked bool                    // the handler panicked, or has not returned yet
	hijacked bool                    // the handler has taken over the connection
	late     bool                    // the handler was stopped before it responded or sent a body
	empty    bool                    // the response has no body so far
	ended    bool                    // the Meter has ended the response
	gone     bool                    // the client cannot be written to
	left     bool                    // the client left before the guard had decided
	stop     context.CancelCauseFunc // of the handler's context
	release  func()                  // of the handler's context

	outside *http.Request       // as it came
	inside  *http.Request       // for the guard
	guarded *nethttp.Exchange   // at the guard
	ctx     context.Context     // of the admitted request
	out     *writer             // of the handler, with its request
	handed  http.ResponseWriter // the one on out

	counted  bool    // pay was called
	paid     []int64 // the units of each budget that the guard has charged
	reserved int64   // tokens of output that are charged
	beyond   int64   // the part of reserved that running charges paid for
	running  []runningCharge
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

// errEnded is the cause with which the Meter cancels the handler's context when it ends a response.
var errEnded = errors.New("llm: the response was ended")

// handler is what Meter.Handler returns. It is the one handler between the server and next, so that
// the goroutine of a stream gets by on a stack of 8 KiB.
type handler struct {
	*Meter
	next http.Handler
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if x := h.admit(w, r); x != nil {
		defer x.close()
		h.next.ServeHTTP(x.handed, x.out.request)
		x.panicked = false
	}
}

// admit returns the exchange of a request that may go on to the next handler. It answers all others,
// and returns nil.
func (h *handler) admit(w http.ResponseWriter, r *http.Request) *exchange {
	f := wire.FormatOf(r, h.formats)
	if f == nil {
		h.other(w, r)
		return nil
	}
	x, fault := h.begin(r, f)
	if fault != nil {
		fault.Write(w, r, f.Errors())
		return nil
	}
	x.outside, x.inside = r, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	x.replaceBody(x.inside)
	if !x.pass(w, h.guards[f]) {
		return nil
	}
	return x
}

// pass asks the guard whether the request may go on. If it may not, it refuses the request and ends
// the exchange.
func (x *exchange) pass(w http.ResponseWriter, guard *nethttp.Guard) (admitted bool) {
	defer func() {
		if !admitted { // also if the guard panics
			x.end()
		}
	}()
	x.guarded = guard.Admit(x.inside)
	x.guarded.WriteHeaders(w.Header())
	if !x.guarded.Allowed() {
		guard.Refuse(w, x.inside, &x.guarded.Admission)
		x.guarded.Finish(x.inside, x.guarded.Status())
		return false
	}
	x.hand(w)
	return true
}

// hand makes what the next handler is given.
func (x *exchange) hand(w http.ResponseWriter) {
	x.whole = nil
	x.ctx = x.guarded.WithContext(x.inside.Context())
	ctx, release := x.context(x.ctx)
	x.release = release
	x.nameModel(w.Header())
	x.out = newWriter(x.guarded.Writer(w), x.inside.WithContext(ctx), x)
	x.handed, x.panicked = x.out.whole(), true
}

// close settles what the response used, when the handler has returned or panicked.
func (x *exchange) close() {
	defer x.end()
	defer x.release()
	defer x.finishGuard()
	x.late = x.late || (x.status == 0 || x.empty) && x.out.request.Context().Err() != nil
	x.out.close()
	x.finish(x.ctx)
	if x.ended && x.panicked {
		// A reverse proxy aborts a response that its server breaks off. This one is whole.
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			panic(p)
		}
		x.panicked = false
	}
}

// finishGuard tells the guard what the handler has responded.
func (x *exchange) finishGuard() {
	status := x.status
	switch {
	case x.hijacked:
		status = http.StatusSwitchingProtocols
	case x.panicked && status == 0:
		status = http.StatusInternalServerError
	case status == 0:
		status = http.StatusOK
	}
	if x.panicked || x.status == 0 && !x.hijacked && x.ctx.Err() != nil {
		x.guarded.Fail()
	}
	x.inside.Pattern = x.out.request.Pattern
	x.guarded.Finish(x.inside.WithContext(x.ctx), status)
}

// end ends the exchange.
func (x *exchange) end() {
	x.outside.Pattern = x.inside.Pattern
	_ = x.body.Close() // cannot fail
	x.observe(x.inside)
}
