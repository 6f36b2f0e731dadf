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
	charges []core.Charge // the asks and the rules
	charged []charged     // one for each charge of a rule
	caps    []semaphore.Cap

	began  time.Time
	asked  time.Time // when it was last decided on without receipts
	waited time.Duration
	sent   int
	unsent bool // the last sending has failed before anything was sent
	wait   wait
	// refusal is what the last response has told, or nil if it refuses nothing.
	refusal *refusal

	// room is where the slices begin, so that few rules cost no further allocation.
	room struct {
		asks    [maxAsks]core.Key
		charges [maxAsks + 2]core.Charge
		charged [2]charged
	}
}

// charged is one rule and what it charges a request.
type charged struct {
	rule *Rule
	cost int64
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
	if _, err := hostOf(x.req); err != nil {
		return err
	}
	account, err := x.t.cfg.Account(x.req)
	if err != nil {
		return wrapped(err)
	}
	x.asks, err = x.t.cool.asks(x.room.asks[:0], account, x.from.model)
	if err != nil {
		return wrapped(err)
	}
	if !x.t.named {
		x.from.of, x.from.keys = x.req, x.asks
	}
	x.charges, x.charged = x.room.charges[:0], x.room.charged[:0]
	for _, key := range x.asks {
		x.charges = append(x.charges, x.t.cool.ask(key))
	}
	for i := range x.t.cfg.Rules {
		rule := &x.t.cfg.Rules[i]
		if rule.Skip != nil && rule.Skip(x.req) {
			continue
		}
		key, err := rule.Key(x.req)
		if err != nil {
			return wrapped(err)
		}
		cost, err := rule.cost(x.req, x.measure)
		if err != nil {
			return err
		}
		x.charges = append(x.charges, core.Charge{
			Policy: rule.Policy, Key: key, Cost: cmp.Or(cost, core.NoCost), Clamp: rule.Clamp,
		})
		x.charged = append(x.charged, charged{rule, cost})
	}
	return x.deriveCaps()
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

// narrowest returns the key that a refusal without a scope concerns.
func (x *exchange) narrowest() core.Key { return x.asks[len(x.asks)-1] }

// account returns the key of the request's account.
func (x *exchange) account() core.Key { return x.asks[0] }
