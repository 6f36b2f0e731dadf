package llm

import (
	"context"
	"errors"
	"net/http"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/requests"
	"github.com/headgate/headgate/internal/writers"
	"github.com/headgate/headgate/llm/internal/wire"
)

type callKey struct{}

// callOf returns the call of a request that a Meter has read, or nil.
func callOf(ctx context.Context) *call {
	x, _ := ctx.Value(callKey{}).(*call)
	return x
}

// call is one request and its response. One goroutine uses it.
type call struct {
	request  wire.Request
	replaced string // the model that the client asked for, if there is another one now
	pricing
	guess    guess
	estimate Usage
	body     *heldBody   // for the server
	change   wire.Change // of the body that the client has sent
	whole    []byte      // the body until the request is admitted, for Config.Downgrade
	hides    bool        // the client did not ask for the usage that the server sends

	tap     *wire.Tap               // of a response of 2xx
	status  int                     // of the response, 0 before it
	aborted bool                    // the handler has not returned; once it is left, it has panicked
	late    bool                    // the handler was stopped before it responded or sent a body
	empty   bool                    // the response has no body so far
	ended   bool                    // the Meter has ended the response
	gone    bool                    // the client cannot be written to
	left    bool                    // the client left before the guard had decided
	stop    context.CancelCauseFunc // of the handler's context

	given    *http.Request     // what the Meter was given
	guarded  *http.Request     // what the guard is given, which carries the call
	admitted *nethttp.Exchange // of the guard
	ctx      context.Context   // of the admitted request
	release  func()            // ends the context of the handler's request
	writer   *writer           // of the handler, with its request

	charges  []core.Charge // of the budgets that running charges charge, without their costs
	paid     []int64       // the units of each budget that the guard has charged, once pay was called
	reserved int64         // tokens of output that are charged
	beyond   int64         // the part of reserved that running charges paid for
	running  []runningCharge
	indebted bool   // a running charge was denied
	ending   string // the code of the error that ends the stream, or empty

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

// handler is what Meter.Handler returns. It is the only handler of the Meter between the server and
// next, so that a stream through a reverse proxy fits in a stack of 8 KiB.
type handler struct {
	meter  *Meter
	guards map[*wire.Format]*nethttp.Guard // of the meter, so that a nil one panics when it is mounted
	next   http.Handler
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if x := h.admit(w, r); x != nil {
		defer x.close()
		h.next.ServeHTTP(writers.Like(x.writer), x.writer.request)
		x.aborted = false
	}
}

// admit returns the call of a request that may go on to the next handler. It answers all others,
// and returns nil.
func (h *handler) admit(w http.ResponseWriter, r *http.Request) *call {
	t, ok := wire.Find(r, h.meter.routes)
	if !ok {
		h.meter.cfg.Other.ServeHTTP(w, r)
		return nil
	}
	x, fault := h.meter.begin(w, r, t)
	if fault != nil {
		fault.Write(w, t.Format.Errors())
		return nil
	}
	x.given, x.guarded = r, r.WithContext(context.WithValue(r.Context(), callKey{}, x))
	x.replaceBody(x.guarded)
	if !x.ask(w, h.guards[t.Format]) {
		return nil
	}
	return x
}

// ask asks the guard whether the request may go on. If it may not, ask refuses the request and
// concludes the call.
func (x *call) ask(w http.ResponseWriter, guard *nethttp.Guard) (admitted bool) {
	defer func() {
		if !admitted { // also if something panics
			x.abandon()
		}
	}()
	x.admitted = guard.Admit(x.guarded)
	x.admitted.WriteHeaders(w.Header())
	if !x.admitted.Allowed() {
		x.left = errors.Is(x.admitted.Err(), context.Canceled)
		guard.Refuse(w, x.guarded, &x.admitted.Admission)
		x.admitted.Finish(x.guarded, x.admitted.Status())
		return false
	}
	x.prepare(w)
	return true
}

// abandon concludes the call of a request that does not reach the next handler.
func (x *call) abandon() {
	defer x.conclude()
	if x.admitted != nil && x.admitted.Allowed() {
		x.admitted.FinishWritten(x.guarded, false)
	}
}

// prepare makes the request and the ResponseWriter for the next handler.
func (x *call) prepare(w http.ResponseWriter) {
	x.whole = nil
	x.ctx = x.admitted.WithContext(x.guarded.Context())
	inner, release := x.context(x.ctx)
	x.nameModel(w.Header())
	x.writer = newWriter(x.admitted.Writer(w), x.guarded.WithContext(inner), x)
	x.release, x.aborted = release, true
	x.deriveRunning(x.writer.request)
}

// close settles what the response used, when the handler has returned or panicked.
func (x *call) close() {
	settled := false
	defer x.conclude()
	defer func() {
		x.admitted.FinishWritten(x.writer.request.WithContext(x.ctx), settled)
	}()
	defer x.release()
	x.late = x.late || (x.status == 0 || x.empty) && x.writer.request.Context().Err() != nil
	x.writer.close()
	x.finish(x.ctx)
	settled = !x.aborted
	if x.ended && x.aborted {
		// A reverse proxy aborts a response that its server breaks off. This one is whole.
		p := recover()
		if p != nil && p != http.ErrAbortHandler {
			panic(p)
		}
		settled = p != nil
	}
}

// conclude shows the handlers around the Meter what is written into the request, closes the body
// and reports the response.
func (x *call) conclude() {
	requests.Show(x.given, x.guarded)
	_ = x.body.Close() // cannot fail
	x.observe(x.guarded)
}
