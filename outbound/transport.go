package outbound

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/line"
)

// Transport is an http.RoundTripper that sends a request when the limits of all replicas have room
// for it. New makes one; the zero value fails every request. It is immutable and safe for
// concurrent use. It has no goroutines of its own: what it gives back in the background belongs to
// the Gate, so close that last.
type Transport struct {
	cfg     Config
	hub     *hub.Hub
	lines   line.Lines[lineKey]
	spaced  bool // a rule lets requests go no closer to each other than its rate allows
	settles bool // something may be charged, refunded or given up when a response has ended
	refunds bool // a request that got no connection gives back what it has spent

	cooldown *core.Policy
	guessed  marks // keys that cool for a guessed time, and when this process learned that
	doubts   marks // keys that one response calls spent, which is to be told twice, and when

	waiting atomic.Int64
}

// New returns a Transport, or every fault of the configuration at once.
func New(cfg Config) (*Transport, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	cfg.Rules = slices.Clone(cfg.Rules)
	cfg.Slot = &Slot{Semaphore: cfg.Slot.Semaphore, Caps: slices.Clone(cfg.Slot.Caps)}
	cooldown, err := core.NewPolicy(core.PolicyConfig{
		Name: coolingName, Algorithm: growth(cfg.Backoff.First, cfg.Backoff.Most),
	})
	if err != nil {
		return nil, wrapped(err)
	}
	t := &Transport{
		cfg: cfg, hub: inside.Of(cfg.Gate), cooldown: cooldown,
	}
	for _, r := range cfg.Rules {
		_, leaks := r.Policy.Algorithm().(core.LeakyBucket)
		t.spaced = t.spaced || leaks
		t.settles = t.settles || r.Settle != nil || r.Clamp || r.Policy.Hold() > 0 ||
			cfg.Meter != nil && r.Cost == nil && r.measured()
		bucket, _ := r.Policy.Algorithm().(core.TokenBucket)
		t.refunds = t.refunds || t.settles || bucket.Rate == 0 // one that refills needs no refund
	}
	return t, nil
}

var errZero = errors.New("outbound: the Transport is nil or zero: New must make it")

// Waiting returns how many requests of this process wait for room.
func (t *Transport) Waiting() int { return int(t.waiting.Load()) }

// RoundTrip sends a request as soon as it has room, and reads what the response tells about the
// limits of the upstream. It does not change the request. A request that was not sent for want of
// room fails with a *BusyError. Other errors are those of Base, of the context, of a KeyFunc or a
// Meter, and of core.Gate.Decide.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t == nil || t.hub == nil {
		closeBody(req)
		return nil, errZero
	}
	x, res, err := t.send(req, patienceOf(req, t.cfg.MaxWait), t.cfg.Retry.Max)
	if err != nil {
		closeBody(x.req)
	}
	return res, err
}

// CloseIdleConnections closes those of Base, as http.Client.CloseIdleConnections asks.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.cfg.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// send waits for room with that patience, sends the request, and sends it again as often as that if it is
// refused. It leaves the body of a request that fails open, and unread if the request was not sent, so
// that another Transport can send it. The delivery is not nil.
func (t *Transport) send(
	req *http.Request, p patience, retries int,
) (x *delivery, res *http.Response, err error) {
	x, err = t.open(req)
	defer func() { x.tell(res, err) }()
	if err != nil {
		return x, nil, err
	}
	x.patience = p
	for {
		p, err := x.admit()
		switch {
		case err != nil && res != nil: // the refusal of the last try
			closeBody(x.req)
			return x, res, nil
		case err != nil:
			return x, nil, err
		}
		res, err = p.send()
		if err != nil || !x.again(res, retries) {
			return x, res, err
		}
	}
}

// tell tells the observer of the outcome.
func (x *delivery) tell(res *http.Response, err error) {
	if x.t.cfg.Observe == nil {
		return
	}
	e := &RequestEvent{
		Request: x.given, Sent: x.sent, Waited: x.waited, Err: err, Took: time.Since(x.began),
	}
	if res != nil {
		e.Status = res.StatusCode
	}
	x.t.cfg.Observe(x.given.Context(), e)
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// wrapped puts the name of the package in front of an error.
func wrapped(err error) error { return fmt.Errorf("outbound: %w", err) }
