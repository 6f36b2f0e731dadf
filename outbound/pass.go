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
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/outbound/internal/signal"
)

// pass is what one sending of a request has spent and holds.
type pass struct {
	x       *exchange
	slot    slot
	ctx     context.Context         // of the request as it is sent
	stop    context.CancelCauseFunc // ends ctx, or nil without a slot
	paid    *core.Reservation       // or nil if it was decided without receipts
	margins []margin                // one for each charged rule
	way     sending
	res     *http.Response
	stream  *stream // or nil if the response is none
	refused bool    // by the response, or by an event of its stream
	settled atomic.Bool

	room [2]margin // where the margins begin
}

// margin is how a rule stood when a request was admitted.
type margin struct {
	left int64     // or -1 if that is unknown
	used int64     // likewise, without what waited
	full time.Time // without receipts: when the rule is full again at the earliest
}

// pass returns what the request was admitted with.
func (x *exchange) pass(l *semaphore.Lease, paid *core.Reservation, d *core.Decision) *pass {
	p := &pass{x: x, slot: slot{lease: l}, paid: paid}
	if d.Cause != nil {
		x.t.failed.Store(time.Now().UnixNano())
	}
	p.margins = p.room[:0]
	for i := range x.charged {
		m := margin{left: -1, used: -1}
		r := d.At(len(x.asks) + i)
		if r.Known && r.Source != core.SourceLocal {
			m = margin{r.Remaining, min(r.Used, r.Limit), x.asked.Add(r.ResetAfter)}
		}
		p.margins = append(p.margins, m)
	}
	return p
}

// send sends the request, and returns the response and what it tells.
func (p *pass) send() (*http.Response, *refusal, error) {
	x := p.x
	if p.ctx = x.req.Context(); p.slot.lease != nil {
		p.ctx, p.stop = context.WithCancelCause(p.ctx)
		p.keep(p.slot.lease)
	}
	x.sent++
	watched := false
	defer func() {
		if !watched { // Base, a Meter or Observe panics, or there is no response
			p.end()
		}
	}()
	sent := time.Now()
	res, err := x.t.cfg.Base.RoundTrip(x.req.WithContext(p.way.trace(p.ctx)))
	switch {
	case err != nil:
		if x.unsent = p.way.nothing(); x.unsent {
			p.cancel()
		}
		return nil, nil, p.explain(err)
	case res == nil:
		return nil, nil, errNoResponse
	case res.Body == nil:
		res.Body = http.NoBody
	}
	defer func() {
		if !watched {
			_ = res.Body.Close() // nobody gets it
		}
	}()
	res.Request = x.given
	p.res = res
	r := p.learn(res)
	p.refused = r != nil
	switch events := signal.EventsOf(res.StatusCode, res.Header); {
	case events != nil:
		p.stream = &stream{sent: sent, events: events}
	case r == nil && res.StatusCode < http.StatusInternalServerError:
		x.served(sent)
	}
	if x.measure != nil {
		x.measure.Response(res)
	}
	p.watch(res, r != nil && r.whole)
	watched = true
	return res, r, nil
}

var errNoResponse = errors.New("outbound: Base returned neither a response nor an error")

// lost reports whether the slot was lost. The request must not be sent then.
func (p *pass) lost() bool {
	l := p.slot.lease
	return l != nil && errors.Is(context.Cause(l.Context()), semaphore.ErrLeaseLost)
}

// explain adds to an error that the slot was lost.
func (p *pass) explain(err error) error {
	cause := context.Cause(p.ctx)
	if !errors.Is(cause, semaphore.ErrLeaseLost) {
		return err
	}
	if errors.Is(err, cause) { // some transports return the cause
		return wrapped(err)
	}
	return fmt.Errorf("outbound: %w: %w", cause, err)
}

// end gives the slot back and settles the rules, unless that was done before.
func (p *pass) end() {
	p.release()
	p.settle()
}

// release gives the slot back in the background.
func (p *pass) release() {
	l, over := p.slot.end()
	if over {
		return
	}
	if p.stop != nil {
		p.stop(context.Canceled)
	}
	ctx := context.WithoutCancel(p.x.req.Context())
	p.x.t.tasks.Go(func() { _ = l.Release(ctx) }) // on failure it is sent again
}

// cancel refunds what a request has spent that was not sent.
func (p *pass) cancel() {
	if p.settled.Swap(true) {
		return
	}
	ctx := context.WithoutCancel(p.x.req.Context())
	p.x.t.tasks.Go(func() { // on failure it stays spent
		if p.paid != nil {
			_ = p.paid.Cancel(ctx)
			return
		}
		for i, c := range p.x.charged {
			if time.Now().Before(p.margins[i].full) { // later others may have spent what a refund gives
				_, _ = give(p.x.t.cfg.Gate, ctx, p.x.charges[len(p.x.asks)+i], c.cost)
			}
		}
	})
}

// give is hub.Give.
var give = hub.Give.(func(*core.Gate, context.Context, core.Charge, int64) (int64, error))

// settle charges what the request has cost, in the background. Nothing reads the response
// meanwhile.
func (p *pass) settle() {
	if p.settled.Swap(true) {
		return
	}
	if p.stream != nil && !p.refused {
		p.x.served(p.stream.sent)
	}
	if !p.settles() {
		return
	}
	x := p.x
	actual := make([]int64, len(x.charges)) // the asks spend nothing
	for i, c := range x.charged {
		actual[len(x.asks)+i] = c.rule.actual(p, c.cost)
	}
	ctx := context.WithoutCancel(x.req.Context())
	x.t.tasks.Go(func() { _ = p.paid.Settle(ctx, actual...) }) // core.Config.Observe sees errors
}

// settles reports whether something is to be settled when the response has ended.
func (p *pass) settles() bool {
	for _, c := range p.x.charged {
		if c.rule.settles(p.x.measure != nil) {
			return true
		}
	}
	return false
}

// refusal is what a response tells that refuses a request.
type refusal struct {
	spent bool
	apart bool          // it began no cooldown
	whole bool          // the body is in memory
	rest  time.Duration // of the cooldown, or of the wait that it tells, or core.Never
}

// busy returns the error of a request that may not be sent again now. Without a cooldown nothing
// would keep it from that later.
func (r *refusal) busy() *BusyError {
	rest := r.rest
	if r.apart {
		rest = core.Never
	}
	e := busyFor(coolingName, rest)
	if e.Spent = r.spent; r.spent {
		e.Rule = spentName
	}
	return e
}

// learn reads what a response tells, and lets all replicas know. It returns nil unless the response
// refuses.
func (p *pass) learn(res *http.Response) *refusal {
	var head []byte
	whole := false
	if signal.Refusal(res.StatusCode) {
		head, whole = p.readRefusal(res)
	}
	s := signal.Read(res.StatusCode, res.Header, head, now())
	if len(s.Remaining) > 0 {
		p.lower(s.Remaining)
	}
	if !s.Refused && !s.Spent {
		return nil
	}
	rest := p.x.refused(res.StatusCode, s)
	return &refusal{spent: s.Spent, apart: s.Apart, whole: whole, rest: rest}
}

// readRefusal returns the first bytes of the body of a refusal, and whether that is all of it. If
// they take their time, the wait that the headers tell holds meanwhile.
func (p *pass) readRefusal(res *http.Response) (text []byte, whole bool) {
	if res.Body == http.NoBody {
		return nil, true
	}
	body := readAhead(res.Body, signal.MaxBody)
	if !body.within(bodySoon) {
		if s := signal.Read(res.StatusCode, res.Header, nil, now()); s.Refused && s.HasWait && !s.Apart {
			_, _ = p.x.cool(s) // if it fails, refused tells
		}
		body.within(bodyPatience)
	}
	head, whole := body.handOver(res)
	return decoded(res.Header, head, signal.MaxBody), whole
}
