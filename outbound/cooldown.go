package outbound

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/outbound/internal/signal"
)

// Names of cooldowns, which no rule may have. The policy of all is coolingName.
const (
	coolingName = "cooldown"
	spentName   = "spent"
)

// An account that is spent, and does not tell until when, is asked again after these times.
const (
	firstSpent = time.Minute
	mostSpent  = 16 * time.Minute
)

// cooldowns are the keys that upstreams have refused, in the Gate.
type cooldowns struct {
	policy  *core.Policy // of blocks, with their reasons
	backoff core.Block   // the growth of cooldowns of a guessed length
	spent   core.Block   // the same of those that are spent

	guessed marks // keys that cool for a guessed time, and when this process learned that
	doubts  marks // accounts that one response calls spent, which is to be told twice, and when
}

func newCooldowns(b Backoff) (*cooldowns, error) {
	c := &cooldowns{
		backoff: core.Block{Strikes: 1, Within: time.Second, For: b.First, Most: b.Most},
		spent:   core.Block{Strikes: 1, Within: time.Second, For: firstSpent, Most: mostSpent},
	}
	var err error
	c.policy, err = core.NewPolicy(core.PolicyConfig{Name: coolingName, Algorithm: c.backoff})
	if err != nil {
		return nil, wrapped(err)
	}
	return c, nil
}

// ask returns the charge that asks whether a key cools.
func (c *cooldowns) ask(key core.Key) core.Charge {
	return core.Charge{Policy: c.policy, Key: key, Cost: core.NoCost}
}

// These are those of package hub.
var (
	block = hub.Cool.(func(
		context.Context, *core.Gate, *core.Policy, core.Key, core.Block, hub.Cooldown,
	) (time.Duration, error))
	heed     = hub.Heed.(func(*core.Gate, *core.Policy, core.Key, time.Duration, int64))
	reasonOf = hub.Reason.(func(core.Result) int64)
	blocked  = hub.Blocked.(func(*core.Gate, core.Charge) (core.Result, bool))
	forgive  = hub.Forgive.(func(context.Context, *core.Gate, *core.Policy, core.Key) error)
)

// scope returns the key that a refusal concerns, if it concerns other requests.
func (x *exchange) scope(s signal.Scope) (key core.Key, ok bool) {
	switch s {
	case signal.Account:
		return x.account(), true
	case signal.Route:
		return x.route, x.route != core.Key{}
	case signal.Request:
		return key, false
	}
	if x.model == (core.Key{}) {
		return x.account(), true
	}
	return x.model, true
}

// refused begins the cooldown of a refusal of a request that was sent at that time, and returns how
// long nothing may be sent. A refusal that says nothing of other requests begins none.
func (x *exchange) refused(status int, s signal.Signal, sent time.Time) *BusyError {
	busy := &BusyError{Rule: coolingName, After: core.Never}
	if busy.Spent = s.Reason == signal.Spent; busy.Spent {
		busy.Rule = spentName
	}
	key, ok := x.scope(s.Scope)
	// A 400 is the request's own fault as a rule: one that calls the account spent may be a mistake.
	if ok && busy.Spent && status == http.StatusBadRequest {
		ok = time.Since(x.t.cool.doubts.add(x.account())) <= mostSpent
	}
	if ok {
		busy.After = x.coolKey(key, status, s, sent)
	}
	return x.busy(busy)
}

// coolKey begins the cooldown of a key, tells the observer, and returns for how long the key cools.
func (x *exchange) coolKey(key core.Key, status int, s signal.Signal, sent time.Time) time.Duration {
	c := x.t.cool
	e := CooldownEvent{
		Request: x.given, Key: key, Status: status,
		Spent: s.Reason == signal.Spent, Guessed: s.Wait == 0,
	}
	growth := c.backoff
	if e.Spent {
		growth = c.spent
	}
	if e.Guessed {
		c.guessed.add(key)
	}
	ctx := context.WithoutCancel(x.req.Context())
	e.For, e.Err = block(ctx, x.t.cfg.Gate, c.policy, key, growth, hub.Cooldown{
		For: min(s.Wait, x.t.cfg.Longest), Age: time.Since(sent), Reason: int64(s.Reason),
	})
	if x.t.cfg.Observe != nil && (e.For > 0 || e.Err != nil) {
		x.t.cfg.Observe(ctx, &e)
	}
	return e.For
}

// served lets the next guessed cooldowns of a request be short again, because the upstream has
// taken it: its response is no refusal and no error of the server. It was sent at that time.
func (x *exchange) served(sent time.Time) {
	c := x.t.cool
	c.doubts.take(x.account(), sent)
	for _, ask := range x.asks {
		if c.guessed.take(ask.Key, sent) {
			ctx := context.WithoutCancel(x.req.Context())
			x.t.tasks.Go(func() { _ = forgive(ctx, x.t.cfg.Gate, c.policy, ask.Key) }) // they stay long
		}
	}
}

// maxMarks bounds what is known of keys. With more of them all is forgotten.
const maxMarks = 1000

// marks are times of keys. The zero value has none.
type marks struct {
	some atomic.Bool // there are any
	mu   sync.Mutex
	at   map[core.Key]time.Time
}

// add marks a key now, and returns when it was marked before.
func (m *marks) add(key core.Key) (before time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at == nil || len(m.at) >= maxMarks {
		m.at = make(map[core.Key]time.Time)
	}
	before = m.at[key]
	m.at[key] = time.Now()
	m.some.Store(true)
	return before
}

// take removes a mark that was made before a time, and reports whether there was one.
func (m *marks) take(key core.Key, before time.Time) bool {
	if !m.some.Load() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.at[key]
	if ok = ok && at.Before(before); ok {
		delete(m.at, key)
		m.some.Store(len(m.at) > 0)
	}
	return ok
}
