package recipes

import (
	"context"
	"errors"
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

// Billed gives each tenant the month of its plan, and counts what that admits a second time, on a key
// of the period, where bill reads it for 40 days after its last request. Key and period are those of
// the clock, such as time.Now: a request at the edge of two periods is in one of them. The period of bill
// is that of the tenant's present plan, so read it before the plan or its Anchor changes.
func Billed(gate *core.Gate, book *plans.Book, next http.Handler, clock func() time.Time) (
	handler http.Handler, bill func(ctx context.Context, tenant string, at time.Time) (used int64, err error),
) {
	month := core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "month", Algorithm: core.DenyAll{}, OnFailure: core.FailClosed,
	}))
	billed := core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "billed", Shadow: true, OnFailure: core.FailClosed,
		Algorithm: core.TokenBucket{Burst: 1e15, Per: 40 * 24 * time.Hour}, // which is never spent
	}))
	periodOf := func(ctx context.Context, tenant string, at time.Time) (string, error) {
		plan, err := book.For(ctx, tenant)
		if err != nil {
			return "", err
		}
		calendar, ok := plan.Algorithm("month").(core.Calendar)
		if !ok {
			return "none", nil // such as of a plan that denies
		}
		period, err := calendar.Period(at)
		return period.From.UTC().Format(time.RFC3339), err
	}
	guard := core.Must(nethttp.NewGuard(nethttp.Config{
		Gate: gate, Scope: byTenant, Plan: book.Plan(byTenant),
		Rules: []nethttp.Rule{
			{Policy: month, Key: keyfunc.Must(keyfunc.Static("all"))},
			{Policy: billed, Key: func(r *http.Request) (string, error) {
				tenant, err := byTenant(r)
				if err != nil {
					return "", err
				}
				return periodOf(r.Context(), tenant, clock())
			}},
		},
	}))
	return guard.Handler(next), func(ctx context.Context, tenant string, at time.Time) (int64, error) {
		period, err := periodOf(ctx, tenant, at)
		if err != nil {
			return 0, err
		}
		if period == "none" {
			return 0, errors.New("the plan has no month: read the bill before a plan changes")
		}
		key, err := core.NewKey(tenant, period)
		if err != nil {
			return 0, err
		}
		d, err := gate.Peek(ctx, core.Charge{Policy: billed, Key: key, Cost: core.NoCost})
		if err != nil || d.Cause != nil {
			return 0, errors.Join(err, d.Cause)
		}
		return d.At(0).Used, nil
	}
}
