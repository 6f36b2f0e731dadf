package recipes

import (
	"context"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/plans"
)

type tenantKey struct{} // of the context, where authentication stores the tenant

var byTenant = keyfunc.Must(keyfunc.ContextValue(tenantKey{}))

// PerPlan gives each tenant the limit of the plan that planOf names, such as from a database. When
// a tenant has paid, call Refresh of the Book.
func PerPlan(
	gate *core.Gate, next http.Handler, planOf func(ctx context.Context, tenant string) (string, error),
) (http.Handler, *plans.Book) {
	set := core.Must(plans.NewSet(plans.SetConfig{Default: "free", Plans: map[string]plans.Plan{
		"free": {Limits: map[string]core.Algorithm{"api": core.PerMinute(60)}},
		"pro":  {Limits: map[string]core.Algorithm{"api": core.PerMinute(600)}},
	}}))
	book := core.Must(plans.New(plans.Config{Set: set, Resolve: planOf}))
	api := core.Must(core.NewPolicy(core.PolicyConfig{Name: "api", Algorithm: core.PerMinute(60)}))
	guard := core.Must(nethttp.NewGuard(nethttp.Config{
		Gate: gate, Plan: book.Plan(byTenant),
		Rules: []nethttp.Rule{{Policy: api, Key: byTenant}},
	}))
	return guard.Handler(next), book
}

// PerModel gives each tenant 60 requests a minute for each model, 5 for the large one, and a budget
// of tokens a minute for all models together.
func PerModel(gate *core.Gate, upstream *url.URL) http.Handler {
	policy := func(name string, unit core.Unit, hold time.Duration, limit core.Algorithm) *core.Policy {
		return core.Must(core.NewPolicy(core.PolicyConfig{Name: name, Unit: unit, Hold: hold, Algorithm: limit}))
	}
	requests := policy("requests", core.UnitRequests, 0, core.PerMinute(60))
	large := policy("large", core.UnitRequests, 0, core.PerMinute(5))
	tokens := policy("tokens", core.UnitTokens, 30*time.Second, core.PerMinute(100_000))
	meter := core.Must(llm.New(llm.Config{
		Guard: nethttp.Config{Gate: gate, Scope: byTenant, Rules: []nethttp.Rule{
			{Policy: requests, Key: llm.ModelKey},
			{Policy: large, Key: byTenant, Skip: llm.UnlessModel("large")},
		}},
		Budgets: []llm.Budget{{Policy: tokens, Key: byTenant}},
		Models:  map[string]llm.Model{"small": {}, "large": {}},
	}))
	return meter.Handler(httputil.NewSingleHostReverseProxy(upstream))
}
