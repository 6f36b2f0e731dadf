package main

import (
	"context"
	_ "embed"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/llm"
)

// hold is how long a dead replica's estimates stay spent. Living replicas renew them.
const hold = 30 * time.Second

// chargeEvery is for how many tokens beyond its estimate a stream pays at a time while it runs.
const chargeEvery = 32

//go:embed page.html
var page []byte

// gateway is one replica.
type gateway struct {
	name  string
	gate  *core.Gate
	plans *plans
	tiers map[string]*tier // by plan
	board *board
}

// tier applies one plan.
type tier struct {
	handler http.Handler
	streams *semaphore.Semaphore
	budgets []*core.Policy
}

func newGateway(gate *core.Gate, p *plans, cfg config, name string) (*gateway, error) {
	g := &gateway{name: name, gate: gate, plans: p, tiers: make(map[string]*tier)}
	g.board = newBoard(g.status)
	upstream := newProxy(cfg)
	for plan, limits := range p.plans {
		t, err := g.newTier(limits, cfg.lease, upstream)
		if err != nil {
			return nil, fmt.Errorf("plans.%s: %w", plan, err)
		}
		g.tiers[plan] = t
	}
	return g, nil
}

// newTier returns the tier of a plan. Policies of one name share their counts across tiers, so a
// tenant that changes its plan keeps what it has spent.
func (g *gateway) newTier(limits *plan, lease time.Duration, upstream http.Handler) (*tier, error) {
	requests, err := core.NewPolicy(core.PolicyConfig{
		Name: "requests", Algorithm: core.PerMinute(limits.RequestsPerMinute),
	})
	if err != nil {
		return nil, err
	}
	t := &tier{}
	if t.budgets, err = budgetsOf(limits); err != nil {
		return nil, err
	}
	t.streams, err = semaphore.New(g.gate, semaphore.Config{
		Name: "streams", TTL: lease, MaxWaiters: int(limits.Queue),
	})
	if err != nil {
		return nil, err
	}
	cfg := llm.Config{
		Guard: nethttp.Config{
			Gate:  g.gate,
			Rules: []nethttp.Rule{{Policy: requests, Key: tenantOf}},
			Slot: &nethttp.Slot{
				Semaphore: t.streams,
				Caps: []nethttp.Cap{
					{Name: "tenant-streams", Key: tenantOf, Limit: limits.StreamsPerTenant},
					{Name: "user-streams", Key: userOf, Limit: limits.StreamsPerUser},
				},
				MaxWait: limits.maxWait,
				Meta:    g.meta,
				OnQueue: func(r *http.Request, place int) { g.board.enter(callerOf(r), place) },
			},
			Observe: g.observe,
		},
		Models:      g.plans.models,
		ChargeEvery: chargeEvery,
		Overrun:     llm.OverrunEnd,
		Other:       upstream, // the list of models
		Observe:     g.report,
	}
	for _, policy := range t.budgets {
		cfg.Budgets = append(cfg.Budgets, llm.Budget{Policy: policy, Key: tenantOf})
	}
	meter, err := llm.New(cfg)
	if err != nil {
		return nil, err
	}
	t.handler = meter.Handler(upstream)
	return t, nil
}

// budgetsOf returns a policy for each budget of a plan. While Redis does not answer, spend refuses
// every request, so that no money is spent uncounted.
func budgetsOf(limits *plan) ([]*core.Policy, error) {
	month := core.Calendar{Limit: limits.MicroDollarsPerMonth, Every: core.PeriodMonth, In: time.UTC}
	configs := []core.PolicyConfig{
		{Name: "spend", Unit: core.UnitMicroDollars, Algorithm: month, OnFailure: core.FailClosed},
		{Name: "tokens", Unit: core.UnitTokens, Algorithm: core.PerMinute(limits.TokensPerMinute)},
	}
	if n := limits.OutputTokensPerMinute; n > 0 {
		configs = append(configs, core.PolicyConfig{
			Name: "output-tokens", Unit: core.UnitOutputTokens, Algorithm: core.PerMinute(n),
		})
	}
	var all []*core.Policy
	for _, cfg := range configs {
		cfg.Hold = hold
		policy, err := core.NewPolicy(cfg)
		if err != nil {
			return nil, err
		}
		all = append(all, policy)
	}
	return all, nil
}

// api is what tenants reach.
func (g *gateway) api() http.Handler { return g.authenticate(g.routes()) }

// operator is the page, and the API for requests that the page sends as a user. It must not be
// reachable for tenants.
func (g *gateway) operator() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v1/", g.actAs(g.routes()))
	mux.Handle("GET /feed", g.board)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page) // the client may be gone
	})
	return http.NewCrossOriginProtection().Handler(mux)
}

func (g *gateway) routes() http.Handler {
	tiered := endStalled(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.tiers[callerOf(r).tenant.plan].handler.ServeHTTP(w, r)
	}))
	mux := http.NewServeMux()
	for _, pattern := range []string{
		"POST /v1/chat/completions", "POST /v1/responses", "POST /v1/messages",
		"GET /v1/models", "GET /v1/models/{model}",
	} {
		mux.Handle(pattern, tiered)
	}
	return mux
}

// meta is what the pages of all replicas show about a running stream.
func (g *gateway) meta(r *http.Request) map[string]string {
	c := callerOf(r)
	return map[string]string{"user": c.name, "request": c.request, "replica": g.name}
}

// observe removes a decided request from the queue, and logs what went wrong.
func (g *gateway) observe(ctx context.Context, event core.Event) {
	e, ok := event.(*nethttp.AdmissionEvent)
	if !ok {
		return
	}
	g.board.leave(callerOf(e.Request))
	if err := e.Admission.Err(); err != nil && ctx.Err() == nil {
		log.Printf("admitted: %t, %v", e.Admission.Allowed(), err)
	}
}

// report logs requests that keep their estimate, which no upstream's bill will match.
func (g *gateway) report(_ context.Context, e core.Event) {
	g.board.change()
	if e, ok := e.(*llm.ResponseEvent); ok && e.Outcome == llm.OutcomeUnreported {
		tenant := callerOf(e.HTTP).tenant.name
		log.Printf("%s: the upstream reported no usage of %q", tenant, e.Request.Model)
	}
}
