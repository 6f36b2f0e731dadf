package outbound

import (
	"context"
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/outbound/internal/signal"
)

// delivery is one request: what it is charged, how it waits, and what its responses tell.
type delivery struct {
	t       *Transport
	given   *http.Request // as the caller made it
	req     *http.Request // as it is sent
	measure Measure       // or nil
	from    derivation    // what the keys of req know

	scopes  [signal.Scopes]core.Key // whom a refusal may concern; zero for what concerns no other request
	ruled   []ruled
	charges []core.Charge // one for each of ruled, and then asks
	asks    []core.Charge // whether keys cool
	caps    []semaphore.Cap
	waiting

	began  time.Time
	sent   int  // how often it was sent
	unsent bool // the last sending has failed before anything was sent
	// refusal is what the last response has told, or nil if it refuses nothing. Waiting does not help
	// if that began no cooldown. whole reports that the body of the response is in memory.
	refusal *BusyError
	whole   bool
}

// ruled is a rule that charges a request.
type ruled struct {
	*Rule
	cooldown core.Key // where nothing is left of Rule.Limit until a reset, or zero
}

// open derives the charges of a request, and decides nothing. The delivery is not nil.
func (t *Transport) open(req *http.Request) (*delivery, error) {
	x := &delivery{t: t, given: req, began: time.Now()}
	x.from.credential = hashed(t.cfg.Credential(req))
	x.req = req.WithContext(context.WithValue(req.Context(), derivationContextKey{}, &x.from))
	if t.cfg.Meter != nil {
		m, err := t.cfg.Meter.Measure(x.req)
		if err != nil {
			return x, wrapped(err)
		}
		if m != nil {
			x.measure, x.from.model = m, m.Model()
		}
	}
	return x, x.derive(x.from.model)
}

// derive derives the keys and costs of the request.
func (x *delivery) derive(model string) error {
	account, err := ByCredential(x.req)
	if err != nil {
		return err
	}
	rules := len(x.t.cfg.Rules)
	x.ruled = make([]ruled, 0, rules)
	x.charges = make([]core.Charge, 0, 2*rules+maxAsks)
	x.asks = append(make([]core.Charge, 0, rules+maxAsks), x.t.ask(account))
	if x.scopes[signal.Model], err = x.askBelow(account, model); err != nil {
		return err
	}
	if x.t.cfg.Route != nil {
		if x.scopes[signal.Route], err = x.askBelow(account, x.t.cfg.Route(x.req), "route"); err != nil {
			return err
		}
	}
	x.scopes[signal.Account] = account
	if model == "" {
		x.scopes[signal.Model] = account
	}
	for i := range x.t.cfg.Rules {
		r := ruled{Rule: &x.t.cfg.Rules[i]}
		if r.Skip != nil && r.Skip(x.req) {
			continue
		}
		c, err := r.charge(x.req, x.measure)
		if err != nil {
			return err
		}
		if r.Limit != "" {
			if r.cooldown, err = x.askBelow(c.Key, r.Policy.Name(), "limit"); err != nil {
				return err
			}
		}
		x.ruled = append(x.ruled, r)
		x.charges = append(x.charges, c)
	}
	x.charges = append(x.charges, x.asks...)
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
	x.asks = append(x.asks, x.t.ask(key))
	return key, nil
}
