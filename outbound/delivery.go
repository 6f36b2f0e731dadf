package outbound

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/outbound/internal/signal"
)

// delivery is one request: what it is charged, how it waits, and what its responses tell. As the context
// of req it tells what the keys of that know.
type delivery struct {
	context.Context // of given

	t          *Transport
	given      *http.Request // as the caller made it
	req        *http.Request // as it is sent
	measure    Measure       // or nil
	credential string        // a hash, or empty
	model      string

	scopes  [signal.Scopes]core.Key // whom a refusal may concern; zero for what concerns no other request
	ruled   []ruled
	charges []core.Charge // one for each of ruled, and then those that ask whether keys cool
	caps    []semaphore.Cap
	waiting

	began  time.Time
	sent   int  // how often it was sent
	unsent bool // the last sending has failed before anything was sent
	// refusal is what the last response has told, or nil if it refuses nothing. Waiting does not help
	// if that began no cooldown. whole reports that the body of the response is in memory.
	refusal *BusyError
	whole   bool

	trace            httptrace.ClientTrace
	asked, connected atomic.Bool // Base asked for a connection, and had one, in the last sending

	// The slices begin here, so that few rules need no further allocation.
	firstRuled   [2]ruled
	firstCharges [3]core.Charge
}

// ruled is a rule that charges a request.
type ruled struct {
	*Rule
	cooldown core.Key  // where nothing is left of Rule.Limit until a reset, or zero
	left     int64     // when the request was admitted, or 0 if its process decided alone
	limit    int64     // with its raises, of which that was left
	due      time.Time // when the turn comes for which its units are reserved, or zero
}

// open derives the charges of a request, and decides nothing. The delivery is not nil.
func (t *Transport) open(req *http.Request) (*delivery, error) {
	x := &delivery{
		Context: req.Context(), t: t, given: req, began: time.Now(), credential: t.credential(req),
	}
	x.trace.GetConn = func(string) { x.asked.Store(true) }
	x.trace.GotConn = func(httptrace.GotConnInfo) { x.connected.Store(true) }
	x.req = req.WithContext(httptrace.WithClientTrace(x, &x.trace))
	if t.cfg.Meter != nil {
		m, err := t.cfg.Meter.Measure(x.req)
		if err != nil {
			return x, wrapped(err)
		}
		if m != nil {
			x.measure, x.model = m, m.Model()
		}
	}
	return x, x.derive()
}

// derive derives the keys and costs of the request.
func (x *delivery) derive() error {
	account, err := ByCredential(x.req)
	if err != nil {
		return err
	}
	x.scopes[signal.Account] = account
	x.ruled = x.firstRuled[:0]
	x.charges = x.firstCharges[:0]
	for i := range x.t.cfg.Rules {
		r := ruled{Rule: &x.t.cfg.Rules[i]}
		if r.Skip != nil && r.Skip(x.req) {
			continue
		}
		c, err := r.charge(x.req, x.measure)
		if err != nil {
			return err
		}
		x.ruled = append(x.ruled, r)
		x.charges = append(x.charges, c)
	}
	if err := x.ask(account); err != nil {
		return err
	}
	for _, c := range x.t.cfg.Slot.Caps {
		key, err := c.Key(x.req)
		if err != nil {
			return wrapped(err)
		}
		x.caps = append(x.caps, semaphore.Cap{
			Key: key, Limit: c.Limit, Share: c.Share, Floor: c.Floor,
		})
	}
	return nil
}

// asks returns the charges that ask whether keys cool.
func (x *delivery) asks() []core.Charge { return x.charges[len(x.ruled):] }

// ask asks about the cooldowns of the account and of what belongs to it.
func (x *delivery) ask(account core.Key) (err error) {
	x.charges = append(x.charges, x.t.ask(account))
	if x.scopes[signal.Model], err = x.askBelow(account, x.model); err != nil {
		return err
	}
	x.scopes[signal.Model] = cmp.Or(x.scopes[signal.Model], account)
	if x.t.cfg.Route != nil {
		if x.scopes[signal.Route], err = x.askBelow(account, x.t.cfg.Route(x.req), "route"); err != nil {
			return err
		}
	}
	for i := range x.ruled {
		if r := &x.ruled[i]; r.Limit != "" {
			if r.cooldown, err = x.askBelow(x.charges[i].Key, r.Policy.Name(), "limit"); err != nil {
				return err
			}
		}
	}
	return nil
}

// askBelow asks about the cooldown of a key with further parts, and returns that, unless the part is
// empty.
func (x *delivery) askBelow(key core.Key, part string, before ...string) (core.Key, error) {
	if part == "" {
		return core.Key{}, nil
	}
	key, err := below(key, append(before, part)...)
	if err != nil {
		return key, wrapped(err)
	}
	x.charges = append(x.charges, x.t.ask(key))
	return key, nil
}
