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
	panicked bool                    // the handler panicked
	late     bool                    // the handler was stopped before it responded or sent a body
	empty    bool                    // the response has no body so far
	ended    bool                    // the Meter has ended the response
	gone     bool                    // the client cannot be written to
	left     bool                    // the client left before the guard had decided
	stop     context.CancelCauseFunc // of the handler's context

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

// serve lets the handler respond, and settles what the response used.
func (x *exchange) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	ctx, release := x.context(r.Context())
	defer release()
	inner := r.WithContext(ctx)
	x.whole = nil
	x.nameModel(w.Header())
	out := newWriter(w, inner, x)
	returned := false
	defer func() {
		r.Pattern = inner.Pattern
		x.panicked = !returned
		x.late = x.late || (x.status == 0 || x.empty) && ctx.Err() != nil
		out.close(returned)
		x.finish(r.Context())
		if x.ended && !returned {
			// A reverse proxy aborts a response that its server breaks off. This one is whole.
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				panic(p)
			}
		}
	}()
	next.ServeHTTP(out.whole(), inner)
	returned = true
}
