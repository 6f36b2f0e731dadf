package outbound

import (
	"cmp"
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
)

// exchange is one request and what it is charged.
type exchange struct {
	t       *Transport
	given   *http.Request // as the caller made it
	req     *http.Request // as it is sent
	measure Measure       // or nil
	from    derivation    // the context of req

	asks    []core.Key    // whose cooldowns it obeys: those of the first charges
	model   core.Key      // of asks, or zero
	route   core.Key      // of asks, or zero
	charges []core.Charge // the asks and the rules
	charged []charged     // one for each charge of a rule
	caps    []semaphore.Cap

	began  time.Time
	waited time.Duration
	// retries is how often the request may be sent again, and sent how often it was sent.
	retries, sent int
	unsent        bool // the last sending has failed before anything was sent
	wait          wait
	// refusal is what the last response has told, or nil if it refuses nothing.
	refusal *refusal

	// room is where the slices begin, so that few rules cost no further allocation.
	room struct {
		asks    [2]core.Key
		charges [4]core.Charge
		charged [2]charged
	}
}

// charged is one rule and what it charges a request.
type charged struct {
	rule  *Rule
	key   core.Key
	cost  int64
	limit core.Key // of asks, for a rule with a Limit
}

// open derives the charges of a request, and decides nothing. The exchange is not nil.
func (t *Transport) open(req *http.Request) (*exchange, error) {
	x := &exchange{t: t, given: req, began: time.Now()}
	x.from.Context = req.Context()
	x.req = req.WithContext(&x.from)
	if t.cfg.Credential != nil {
		credential := t.cfg.Credential(req)
		x.from.credential = &credential
	}
	if t.cfg.Meter != nil {
		m, err := t.cfg.Meter.Measure(x.req)
		if err != nil {
			return x, wrapped(err)
		}
		if m != nil {
			x.measure, x.from.model = m, m.Model()
		}
	}
	return x, x.derive()
}

// derive derives the keys and costs of the request.
func (x *exchange) derive() error {
	account, err := ByCredential(x.req)
	if err != nil {
		return err
	}
	x.asks = append(x.room.asks[:0], account)
	if err := x.askBelow(&x.model, account, x.from.model); err != nil {
		return err
	}
	x.from.of, x.from.keys = x.req, x.asks
	if x.t.cfg.Route != nil {
		if err := x.askBelow(&x.route, account, x.t.cfg.Route(x.req), "route"); err != nil {
			return err
		}
	}
	x.charged = x.room.charged[:0]
	for i := range x.t.cfg.Rules {
		if err := x.charge(&x.t.cfg.Rules[i]); err != nil {
			return err
		}
	}
	x.charges = x.room.charges[:0]
	for _, key := range x.asks {
		x.charges = append(x.charges, x.t.cool.ask(key))
	}
	for _, c := range x.charged {
		x.charges = append(x.charges, core.Charge{
			Policy: c.rule.Policy, Key: c.key, Cost: cmp.Or(c.cost, core.NoCost), Clamp: c.rule.Clamp,
		})
	}
	return x.deriveCaps()
}

// charge derives what a rule charges, and asks about the cooldown of its limit.
func (x *exchange) charge(rule *Rule) (err error) {
	if rule.Skip != nil && rule.Skip(x.req) {
		return nil
	}
	c := charged{rule: rule}
	if c.key, err = rule.Key(x.req); err != nil {
		return wrapped(err)
	}
	if c.cost, err = rule.cost(x.req, x.measure); err != nil {
		return err
	}
	if rule.Limit != "" {
		err = x.askBelow(&c.limit, c.key, rule.Policy.Name(), "limit")
	}
	x.charged = append(x.charged, c)
	return err
}

// askBelow asks about the cooldown of a key with further parts, unless the first is empty.
func (x *exchange) askBelow(into *core.Key, key core.Key, part string, more ...string) (err error) {
	if part == "" {
		return nil
	}
	if *into, err = below(key, append(more, part)...); err != nil {
		return wrapped(err)
	}
	x.asks = append(x.asks, *into)
	return nil
}

func (x *exchange) deriveCaps() error {
	if x.t.cfg.Slot == nil {
		return nil
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

// narrowest returns the key of the request's model, or of its account if it has none.
func (x *exchange) narrowest() core.Key {
	if x.model == (core.Key{}) {
		return x.account()
	}
	return x.model
}

// account returns the key of the request's account.
func (x *exchange) account() core.Key { return x.asks[0] }
