package llm

import (
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm/internal/wire"
)

// Meter applies budgets to requests to language models. New makes one. It is safe for concurrent
// use.
//
// It estimates the input of a request by the kinds of its bytes: a token for four bytes of prose,
// for three of other scripts, and for one and a half of digits and base64. A file counts as what an
// image costs. The output is the request's own cap, or without one Config.MaxOutput, for each answer.
// The Meter corrects both by the ratio of actual to estimated tokens in the model's last requests.
// Models that are not in Config.Models share one ratio. A budget counts an estimate above its limit
// as the limit, so that a large request can pass.
//
// When the response has ended, the budgets count what it used in place of the estimate:
//
//   - A response that states its usage counts as that.
//   - A response that breaks off, because the client has left or the server fails, counts as its
//     input and the output that was seen: at least one token for each event with text. So does a
//     request whose client leaves before there is a response.
//   - A response with a status other than 2xx counts as nothing.
//   - A whole response that states no usage counts as the estimate, or as its input and the output
//     that was seen if they are more.
//
// It decodes a copy of a gzip response. A response in another Content-Encoding counts as the
// estimated input and the output cap. A Meter asks the server for gzip at most.
type Meter struct {
	cfg     Config
	routes  []wire.Route // in the order in which they are asked for a path
	guards  map[*wire.Format]*nethttp.Guard
	budgets *nethttp.Guard     // without the other rules, for running charges
	own     map[string]*learnt // of Config.Models
	lessons lessons            // of unknown models
	bodies  bodies

	listing sync.Mutex
	catalog *catalog // of the files as they were read last
}

// New returns a Meter, or every fault of the configuration at once.
func New(cfg Config) (*Meter, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	m := newMeter(cfg)
	rules := m.rules()
	for _, f := range wire.Formats {
		guard := cfg.Guard
		if guard.Dialect == nil {
			guard.Dialect = dialectOf(f, cfg.RetryWithin)
		}
		guard.Rules = slices.Concat(guard.Rules, rules)
		guard.Plan = planByModel(guard.Plan)
		if cfg.Downgrade != nil {
			guard.Reconsider = m.downgrade
		}
		if m.guards[f], err = nethttp.NewGuard(guard); err != nil {
			return nil, fmt.Errorf("llm: Config.Guard: %w", err)
		}
	}
	only := nethttp.Config{Gate: cfg.Guard.Gate, Scope: cfg.Guard.Scope, Rules: rules}
	if cfg.Guard.Plan != nil {
		only.Plan = func(r *http.Request) (core.Plan, error) { // that which admitted the request
			return nethttp.AdmissionFromContext(r.Context()).Plan(), nil
		}
	}
	if m.budgets, err = nethttp.NewGuard(only); err != nil {
		return nil, fmt.Errorf("llm: Config.Budgets: %w", err)
	}
	return m, nil
}

// newMeter returns a Meter without its guards, for a complete configuration.
func newMeter(cfg Config) *Meter {
	m := &Meter{
		cfg: cfg, routes: routesOf(cfg.Routes), guards: make(map[*wire.Format]*nethttp.Guard),
		own: make(map[string]*learnt, len(cfg.Models)),
	}
	m.bodies.most, m.bodies.by = cfg.MaxBodies+wire.UsageBytes, make(map[string]int64)
	for name, model := range cfg.Models {
		model.Tariff = model.Tariff.clone()
		m.own[name] = &learnt{Model: model}
	}
	m.catalogNow() // so that no request waits for it
	return m
}

// catalogNow returns the models, with the prices that the files of Config.Prices have now.
func (m *Meter) catalogNow() *catalog {
	var list *priceList
	if m.cfg.Prices != nil {
		list = m.cfg.Prices.current.Load()
	}
	m.listing.Lock()
	defer m.listing.Unlock()
	if m.catalog == nil || m.catalog.listed != list {
		m.catalog = newCatalog(m.own, list)
	}
	return m.catalog
}

// Guard returns the guard of the requests of a format, or nil if the Meter does not know it. Its
// Usage shows a client its budgets. Its Charges and Levels have the keys of a request, with which to
// peek at its budgets or reset them.
func (m *Meter) Guard(f Format) *nethttp.Guard { return m.guards[f.wire] }

// Handler returns a handler that applies the budgets and passes admitted requests to next. It
// passes on a panic of next. A Meter that is mounted twice counts a request twice; see
// nethttp.Guard.Admit.
//
// A response states the limits of the Meter's guard. The Meter drops other x-ratelimit-* and
// anthropic-ratelimit-* headers of next, in which a server states the limits of the gateway's
// account.
func (m *Meter) Handler(next http.Handler) http.Handler { return &handler{m, m.guards, next} }
