package outbound

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/outbound/internal/signal"
)

// Names of policies, which no rule may have.
const (
	coolingName = "cooldown"
	spentName   = "spent"
)

// maxAsks is the most charges by which a request asks about cooldowns: two policies of two keys.
const maxAsks = 4

const (
	// shortestCooldown is as short as a wait in Redis can be told from none.
	shortestCooldown = time.Millisecond
	// longestCooldown bounds a cooldown, so that a header that is wrong stops an account for a day at
	// most.
	longestCooldown = 24 * time.Hour
)

// An account that is spent, and does not tell until when, is asked again after these times.
const (
	firstSpent = time.Minute
	mostSpent  = 16 * time.Minute
)

// cooldowns are the keys that upstreams have refused, as blocks in the Gate.
type cooldowns struct {
	gate           *core.Gate
	cooling, spent cooldown
	cooled         marks // keys that may have guessed cooldowns, and when this process learned that
	strains        marks // keys that others use up, and when a response last told so
}

// cooldown is one kind of cooldown. A strike begins one whose length doubles.
type cooldown struct {
	policy *core.Policy
	list   *core.Blocklist
}

func newCooldowns(g *core.Gate, b Backoff) (*cooldowns, error) {
	cooling, err := newCooldown(g, coolingName, core.Block{
		Strikes: 1, Within: time.Second, For: b.First, Most: b.Most,
	})
	if err != nil {
		return nil, err
	}
	spent, err := newCooldown(g, spentName, core.Block{
		Strikes: 1, Within: time.Second, For: firstSpent, Most: mostSpent, Forgive: mostSpent,
	})
	return &cooldowns{gate: g, cooling: cooling, spent: spent}, err
}

func newCooldown(g *core.Gate, name string, b core.Block) (c cooldown, err error) {
	c.policy, err = core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: b})
	if err == nil {
		c.list, err = core.NewBlocklist(g, c.policy)
	}
	if err != nil {
		err = fmt.Errorf("outbound: Config.Backoff: %w", err)
	}
	return c, err
}

// ask is the question whether a key cools.
type ask struct {
	kind *cooldown
	key  core.Key
}

func (a ask) charge() core.Charge {
	return core.Charge{Policy: a.kind.policy, Key: a.key, Cost: core.NoCost}
}

// asks returns the questions of a request, those of the account first.
func (c *cooldowns) asks(account core.Key, model string) ([]ask, error) {
	asks := append(make([]ask, 0, maxAsks), ask{&c.spent, account}, ask{&c.cooling, account})
	if model == "" {
		return asks, nil
	}
	key, err := below(account, model)
	return append(asks, ask{&c.spent, key}, ask{&c.cooling, key}), err
}

// These are hub.Mark and hub.Forgive.
var (
	mark    = hub.Mark.(func(context.Context, *core.Gate, *core.Policy, core.Key) error)
	forgive = hub.Forgive.(func(context.Context, *core.Gate, *core.Policy, core.Key) error)
)

// refused begins the cooldown of a refusal, and returns how long it lasts.
func (x *exchange) refused(status int, s signal.Signal) time.Duration {
	ctx, c := context.WithoutCancel(x.req.Context()), x.t.cool
	e := CooldownEvent{Request: x.given, Key: x.account(), Status: status, Spent: s.Spent}
	kind := &c.cooling
	if s.Spent {
		kind = &c.spent
	}
	// A refusal whose wait is over tells none.
	e.Guessed = !s.HasWait || s.Wait <= 0
	if s.Model || e.Guessed && !s.Spent {
		e.Key = x.narrowest()
	}
	c.cooled.add(e.Key, time.Now())
	c.strains.add(e.Key, time.Now())
	if e.Guessed {
		e.Err = mark(ctx, c.gate, kind.policy, e.Key)
	} else {
		wait := min(max(s.Wait, shortestCooldown), longestCooldown)
		e.Err = kind.list.Block(ctx, e.Key, wait)
	}
	// This process knows the cooldown from here on, without another round trip.
	d, err := c.gate.Decide(ctx, ask{kind, e.Key}.charge())
	if err == nil && !d.Allowed {
		e.For = d.RetryAfter()
	}
	if x.t.cfg.Observe != nil {
		x.t.observe(ctx, &e)
	}
	return e.For
}

// marks are times of keys. The zero value has none.
type marks struct {
	some atomic.Bool // there are any
	mu   sync.Mutex
	at   map[core.Key]time.Time
}

// maxMarks bounds the marks. With more of them all are forgotten, which does no harm.
const maxMarks = 1000

func (m *marks) add(key core.Key, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at == nil || len(m.at) >= maxMarks {
		m.at = make(map[core.Key]time.Time)
	}
	m.at[key] = at
	m.some.Store(true)
}

// within reports whether a key has a mark that is at most that old.
func (m *marks) within(key core.Key, age time.Duration) bool {
	if !m.some.Load() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.at[key]
	return ok && time.Since(at) <= age
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

// served lets the next guessed cooldowns of a request be short again, because a response to it was
// no refusal. The request was sent at that time.
func (x *exchange) served(sent time.Time) {
	c := x.t.cool
	for _, a := range x.asks {
		if a.kind == &c.cooling && c.cooled.take(a.key, sent) {
			ctx := context.WithoutCancel(x.req.Context())
			x.t.tasks.Go(func() { _ = forgive(ctx, c.gate, a.kind.policy, a.key) }) // they stay long
		}
	}
}
