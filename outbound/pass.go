package outbound

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/outbound/internal/signal"
)

// pass is what one sending of a request has spent and holds.
type pass struct {
	x    *delivery
	req  *http.Request
	stop context.CancelCauseFunc // ends the context of req, or nil without a slot
	slot
	paid    *core.Reservation // or nil
	sent    time.Time
	res     *http.Response
	stream  *signal.Events // or nil if the response is none whose status does not tell how it ends
	refused bool           // by the response, or by an event of its stream
	settled atomic.Bool
}

// pass returns what the request was admitted with, unless the slot is lost meanwhile: then it must not be
// sent.
func (x *delivery) pass(l *semaphore.Lease, paid *core.Reservation) (*pass, *BusyError, error) {
	if lost(l) {
		x.giveBack(paid)
		_ = l.Release(x.req.Context()) // on failure it is sent again
		return nil, new(BusyError), nil
	}
	p := &pass{x: x, req: x.req, paid: paid}
	if l != nil {
		ctx, stop := context.WithCancelCause(x.req.Context())
		p.req = x.req.WithContext(ctx)
		p.stop = stop
		p.keep(l)
	}
	return p, nil, nil
}

// send sends the request, and returns the response.
func (p *pass) send() (*http.Response, error) {
	x := p.x
	x.sent++
	watched := false
	defer func() {
		if watched {
			return
		}
		if p.res != nil { // a Meter or Observe panics, and nobody gets the response
			_ = p.res.Body.Close()
		}
		p.end()
	}()
	p.sent = time.Now()
	x.asked.Store(false)
	x.connected.Store(false)
	res, err := x.t.cfg.Base.RoundTrip(p.req)
	switch {
	case err != nil:
		// It had no connection, not even one that broke before Base dialed again.
		if x.unsent = x.asked.Load() && !x.connected.Load(); x.unsent {
			p.settled.Store(true)
			x.t.hub.Tasks.Go(func() { _ = p.paid.Cancel(p.req.Context()) }) // on failure it stays spent
		}
		return nil, p.explain(err)
	case res == nil:
		return nil, errNoResponse
	case res.Body == nil:
		res.Body = http.NoBody
	}
	res.Request = x.given
	p.res = res
	p.learn(res)
	switch events := signal.EventsOf(res.StatusCode, res.Header); {
	case events != nil:
		p.stream = events
	case !p.refused && res.StatusCode < http.StatusInternalServerError:
		x.served(p.sent)
	}
	if x.measure != nil {
		x.measure.Response(res)
	}
	p.watch(res)
	watched = true
	return res, nil
}

var errNoResponse = errors.New("outbound: Base returned neither a response nor an error")

// explain adds to an error that the slot was lost.
func (p *pass) explain(err error) error {
	if cause := context.Cause(p.req.Context()); errors.Is(cause, semaphore.ErrLeaseLost) {
		return fmt.Errorf("outbound: %w: %w", cause, err)
	}
	return err
}

// end gives the slot back and settles the rules, unless that was done before.
func (p *pass) end() {
	p.release()
	p.settle()
}

// settle charges what the request has cost, in the background. Nothing reads the response
// meanwhile.
func (p *pass) settle() {
	if p.settled.Swap(true) {
		return
	}
	if p.stream != nil && !p.refused {
		p.x.served(p.sent)
	}
	if !p.x.t.settles {
		return
	}
	x := p.x
	actual := make([]int64, len(x.charges)) // the asks spend nothing
	for i, r := range x.ruled {
		actual[i] = r.actual(p, i)
	}
	// It runs to its end also if the context has ended, and core.Config.Observe sees errors.
	x.t.hub.Tasks.Go(func() { _ = p.paid.Settle(p.req.Context(), actual...) })
}

// learn reads what a response tells, and lets all replicas know.
func (p *pass) learn(res *http.Response) {
	x := p.x
	x.refusal = nil
	x.whole = res.Body == http.NoBody
	var head []byte
	reads := !x.whole && (signal.Refusal(res.StatusCode) ||
		x.t.cfg.Read != nil && res.StatusCode >= http.StatusBadRequest)
	if reads {
		head, x.whole = readAhead(res, signal.MaxBody)
		head = decoded(res.Header, head, signal.MaxBody)
	}
	s := x.t.read(res, head)
	p.lower(s.Remaining, res.StatusCode)
	if p.refused = s.Reason != signal.None; !p.refused {
		x.whole = res.Body == http.NoBody // otherwise a Meter may read along
		return
	}
	if !reads && !x.whole { // Config.Read knows the status
		_, x.whole = readAhead(res, signal.MaxBody)
	}
	x.refusal = x.refused(res.StatusCode, s, p.sent)
}

// look looks for a refusal in the next part of a stream, which begins a cooldown in the background.
func (p *pass) look(part []byte) {
	if p.stream == nil || p.refused {
		return
	}
	status, told := p.stream.Find(part, time.Now())
	if p.refused = told.Reason != signal.None; p.refused {
		p.x.t.hub.Tasks.Go(func() { p.x.refused(status, told, p.sent) })
	}
}
