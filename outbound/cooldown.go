package outbound

import (
	"context"
	"net/http"
	"sync"
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

// growth returns how cooldowns of a guessed length grow.
func growth(first, most time.Duration) core.Block {
	return core.Block{Strikes: 1, Within: time.Second, For: first, Most: most}
}

// ask returns the charge that asks whether a key cools.
func (t *Transport) ask(key core.Key) core.Charge {
	return core.Charge{Policy: t.cooldown, Key: key, Cost: core.NoCost}
}

var inside = core.Inside(hub.Pass{})

// refused begins the cooldown of a refusal of a request that was sent at that time, and returns how
// long nothing may be sent. A refusal that says nothing of other requests begins none.
func (x *delivery) refused(status int, s signal.Signal, sent time.Time) *BusyError {
	busy := &BusyError{Rule: coolingName, After: core.Never}
	if busy.Spent = s.Reason == signal.Spent; busy.Spent {
		busy.Rule = spentName
	}
	key := x.scopes[s.Scope]
	ok := key != core.Key{}
	// A 400 is the request's own fault as a rule: one that calls the account spent may be a mistake.
	if ok && busy.Spent && status == http.StatusBadRequest {
		ok = time.Since(x.t.doubts.add(key)) <= mostSpent
	}
	if ok {
		busy.After = x.coolKey(key, status, s, sent)
	}
	return x.busy(busy)
}

// coolKey begins the cooldown of a key, tells the observer, and returns for how long the key cools.
func (x *delivery) coolKey(key core.Key, status int, s signal.Signal, sent time.Time) time.Duration {
	e := CooldownEvent{
		Request: x.given, Key: key, Status: status,
		Spent: s.Reason == signal.Spent, Guessed: s.Wait == 0,
	}
	grows := growth(x.t.cfg.Backoff.First, x.t.cfg.Backoff.Most)
	if e.Spent {
		grows = growth(firstSpent, mostSpent)
	}
	if e.Guessed {
		x.t.guessed.add(key)
	}
	ctx := context.WithoutCancel(x.req.Context())
	e.For, e.Err = inside.Cool(ctx, x.t.cfg.Gate, x.t.cooldown, key, grows, hub.Cooldown{
		For: min(s.Wait, x.t.cfg.Longest), Age: time.Since(sent), Reason: int64(s.Reason),
	})
	if x.t.cfg.Observe != nil && (e.For > 0 || e.Err != nil) {
		x.t.cfg.Observe(ctx, &e)
	}
	return e.For
}

// served lets the next guessed cooldowns of a request be short again, because the upstream has
// taken it: its response is no refusal and no error of the server. It was sent at that time.
func (x *delivery) served(sent time.Time) {
	for _, ask := range x.asks() {
		x.t.doubts.take(ask.Key, sent)
		if x.t.guessed.take(ask.Key, sent) {
			ctx := context.WithoutCancel(x.req.Context())
			x.t.hub.Tasks.Go(func() { _ = inside.Forgive(ctx, x.t.cfg.Gate, ask.Policy, ask.Key) }) // they stay long
		}
	}
}

// maxMarks bounds what is known of keys. With more of them all is forgotten.
const maxMarks = 1000

// marks are times of keys. The zero value has none.
type marks struct {
	mu sync.Mutex
	at map[core.Key]time.Time
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
	return before
}

// take removes a mark that was made before a time, and reports whether there was one.
func (m *marks) take(key core.Key, before time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.at[key]
	if ok = ok && at.Before(before); ok {
		delete(m.at, key)
	}
	return ok
}
