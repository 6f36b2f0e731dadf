package llm

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate/adapters/llm/internal/wire"
	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
)

// Meter applies budgets to requests to language models. New makes one. It is safe for concurrent
// use.
//
// It estimates the input of a request as a token for four bytes of its prompt, and the output as
// the request's own cap, at most Config.MaxOutput for each answer. Both are corrected by the ratio
// of actual to estimated tokens that it has learnt of the model's last requests. Models that are
// not in Config.Models share one ratio. A budget counts an estimate above its limit as the limit,
// so that a large request can pass.
//
// When the response has ended, the budgets count what it used instead:
//
//   - a response that tells its usage: that
//   - a response that breaks off, because the client has left or the server fails, and a request
//     whose client leaves before there is a response: its input and the output that was seen, at
//     least one token for each event with text
//   - a response with another status than 2xx: nothing
//   - a whole response that tells no usage: the estimate, or its input and the output that was seen
//     if they are more
type Meter struct {
	cfg     Config
	guards  [wire.Formats]*nethttp.Guard
	budgets [wire.Formats]*nethttp.Guard // without the other rules, for running charges
	all     []Model                      // of Config.Models, without those that are never the dearest
	lessons map[string]*lessons
}

// New returns a Meter, or every fault of the configuration at once.
func New(cfg Config) (*Meter, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	m := &Meter{cfg: cfg, lessons: map[string]*lessons{"": new(lessons)}}
	for name, model := range cfg.Models {
		m.all = keepDearest(m.all, model)
		m.lessons[name] = new(lessons)
	}
	rules := m.rules()
	for f := range m.guards {
		guard := cfg.Guard
		if guard.Dialect == nil {
			guard.Dialect = dialectOf(Format(f), cfg.RetryWithin)
		}
		guard.Rules = slices.Concat(guard.Rules, rules)
		if m.guards[f], err = nethttp.NewGuard(guard); err != nil {
			return nil, fmt.Errorf("llm: Config.Guard: %w", err)
		}
		only := nethttp.Config{Gate: guard.Gate, Scope: guard.Scope, Rules: rules}
		if m.budgets[f], err = nethttp.NewGuard(only); err != nil {
			return nil, fmt.Errorf("llm: Config.Budgets: %w", err)
		}
	}
	return m, nil
}

// dialectOf returns how the server of a format speaks to its clients.
func dialectOf(f Format, within time.Duration) nethttp.Dialect {
	if f == FormatAnthropicMessages {
		return Anthropic{RetryWithin: within}
	}
	return OpenAI{RetryWithin: within}
}

// rules returns a rule for each budget.
func (m *Meter) rules() []nethttp.Rule {
	var rules []nethttp.Rule
	for i, b := range m.cfg.Budgets {
		unit := b.Policy.Unit()
		rules = append(rules, nethttp.Rule{
			Policy: b.Policy, Key: b.Key, NoKey: b.NoKey, Limit: b.Limit, Skip: b.Skip, Clamp: true,
			Cost: func(r *http.Request) int64 {
				x := exchangeOf(r.Context())
				if x == nil { // an operator's, of Guard.Charges
					return 0
				}
				return cost(x.models, unit, x.estimate)
			},
			Settle: func(r *http.Request, _ int, cost int64) int64 {
				if x := exchangeOf(r.Context()); x != nil && x.settled != nil {
					return x.settled[i]
				}
				return cost
			},
		})
	}
	return rules
}

// Guard returns the guard of the requests of a format. Its Usage tells a client its budgets. Its
// Charges and Levels tell the keys of a request, to peek at its budgets or to reset them.
func (m *Meter) Guard(f Format) *nethttp.Guard { return m.guards[f] }

// Handler returns a handler that applies the budgets and passes admitted requests to next. A panic
// of next goes through. A Meter that is mounted twice counts a request twice; see
// nethttp.Guard.Admit.
//
// A response states the limits of the Meter's guard. Other x-ratelimit-* and anthropic-ratelimit-*
// headers of next are dropped: a server states the limits of the gateway's account there.
func (m *Meter) Handler(next http.Handler) http.Handler {
	var guarded [wire.Formats]http.Handler
	for f, g := range m.guards {
		guarded[f] = g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			exchangeOf(r.Context()).serve(w, r, next)
		}))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := wire.FormatOf(r)
		if !ok {
			m.other(w, r)
			return
		}
		x, fault := m.begin(r, f)
		if fault != nil {
			fault.Write(w, r, f)
			return
		}
		inner := r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
		x.replaceBody(inner)
		defer func() {
			r.Pattern = inner.Pattern
			x.observe(inner)
		}()
		guarded[f].ServeHTTP(w, inner)
	})
}

func (m *Meter) other(w http.ResponseWriter, r *http.Request) {
	if m.cfg.Other != nil {
		m.cfg.Other.ServeHTTP(w, r)
		return
	}
	http.NotFound(w, r)
}

// running returns the charges of some more tokens of output, one for each budget that counts it.
func (m *Meter) running(r *http.Request, x *exchange, tokens int64) ([]core.Charge, error) {
	all, err := m.budgets[x.request.Format].Charges(r)
	if err != nil {
		return nil, err
	}
	var charges []core.Charge
	for _, c := range all {
		c.Cost = cost(x.models, c.Policy.Unit(), Usage{Output: tokens})
		if c.Clamp = false; c.Cost > 0 {
			charges = append(charges, c)
		}
	}
	return charges, nil
}
