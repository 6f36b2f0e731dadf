package plans_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/plans"
)

func Example() {
	set := core.Must(plans.ParseSet([]byte(`
default: free
plans:
  free: {limits: {api: {rate: 2, per: 1m}}}
  pro: {limits: {api: {rate: 100, per: 1m}}}
`)))
	book := core.Must(plans.New(plans.Config{
		Set: set, // or File, which is watched
		Resolve: func(_ context.Context, tenant string) (string, error) {
			if tenant == "acme" {
				return "pro", nil
			}
			return "", nil // the default plan
		},
	}))
	defer book.Close()
	gate := core.Must(core.NewMemory(core.Config{}))
	api := core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "api", Algorithm: core.PerMinute(1), // of a plan that does not name it
	}))
	for _, tenant := range []string{"acme", "globex"} {
		user := core.Must(core.NewKey(tenant, "user-1"))
		plan, err := book.For(context.Background(), tenant) // once a request
		if err != nil {
			log.Fatal(err)
		}
		d, err := gate.Decide(context.Background(), core.Charge{
			Policy: api, Key: user, Cost: 1, Limit: plan.Algorithm("api"),
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(tenant, d.At(0).Remaining, "of", d.At(0).Limit)
	}
	// Output:
	// acme 99 of 100
	// globex 1 of 2
}

// The plan of a request is that of its organisation, team and user. Each level has a policy of its
// own, and the refusal names the one that denies.
func ExampleBook_Plan() {
	set := core.Must(plans.ParseSet([]byte(`
default: free
plans:
  free: {limits: {org-month: {rate: 0, burst: 100}, requests: {rate: 10, per: 1m}}}
  small-team: {limits: {team-day: {rate: 0, burst: 2}}}
  power-user: {limits: {requests: {rate: 500, per: 1m}}}
`)))
	book := core.Must(plans.New(plans.Config{Set: set, Resolve: func(_ context.Context, tenant string) (string, error) {
		return map[string]string{"team:search": "small-team", "user:ada": "power-user"}[tenant], nil
	}}))
	defer book.Close()
	gate := core.Must(core.NewMemory(core.Config{}))
	rule := func(name string, key keyfunc.Func) nethttp.Rule {
		policy := core.Must(core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: core.Unlimited{}}))
		return nethttp.Rule{Policy: policy, Key: key}
	}
	// In a program, authentication stores them in the context; see keyfunc.ContextValue.
	org, team, user := keyfunc.Must(keyfunc.Static("org:acme")), keyfunc.Must(keyfunc.Static("team:search")), keyfunc.Must(keyfunc.Static("user:ada"))
	guard := core.Must(nethttp.NewGuard(nethttp.Config{
		Gate: gate, Scope: org, Plan: book.Plan(org, team, user),
		Rules: []nethttp.Rule{rule("org-month", org), rule("team-day", team), rule("requests", user)},
	}))
	h := guard.Handler(http.NotFoundHandler())
	for range 3 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		var refusal struct {
			Violated []string `json:"violated-policies"`
		}
		_ = json.Unmarshal(w.Body.Bytes(), &refusal) // the body of 404 is a text
		fmt.Println(w.Code, refusal.Violated)
	}
	// Output:
	// 404 []
	// 404 []
	// 429 [team-day]
}

// A file with faults is refused as a whole, and the error has all of them.
func ExampleParseSet() {
	_, err := plans.ParseSet([]byte(`
default: basic
plans:
  free:
    limits:
      api: {rate: -1, per: 1m}
      search: {rate: 10, per: minute}
`))
	fmt.Println(err)
	// Output:
	// plans: line 2: default is "basic": there is no such plan
	// plans: line 6: plans.free.limits.api.rate is -1: it must not be negative
	// plans: line 7: plans.free.limits.search.per is "minute": it must be a duration such as 500ms, 10s, 1m, 1h30m or 30d
}

func ExampleBook_SetOverride() {
	set := core.Must(plans.NewSet(plans.SetConfig{Default: "free", Plans: map[string]plans.Plan{
		"free": {Limits: map[string]core.Algorithm{"api": core.PerMinute(10)}},
		"pro":  {Limits: map[string]core.Algorithm{"api": core.PerMinute(100)}},
	}}))
	book := core.Must(plans.New(plans.Config{Set: set})) // with a Client, all processes obey it
	defer book.Close()
	ctx := context.Background()
	trial := plans.Override{Plan: "pro", Until: time.Now().Add(14 * 24 * time.Hour)}
	if err := book.SetOverride(ctx, "acme", trial); err != nil {
		log.Fatal(err)
	}
	now, err := book.Subscription(ctx, "acme")
	fmt.Println(now.Plan, err)
	fmt.Println(book.SetOverride(ctx, "acme", plans.Override{Plan: "gold"}))
	// Output:
	// pro <nil>
	// plans: unknown plan: override.plan is "gold"
}

// A tenant that bought on the 17th has months from the 17th, and a smaller plan once what it has paid
// for is over.
func ExampleSubscription() {
	set := core.Must(plans.ParseSet([]byte(`
default: free
plans:
  free: {limits: {tokens: {limit: 10, calendar: month, in: UTC, anchor: subscription}}}
  pro:
    limits:
      tokens: {limit: 1000, calendar: month, in: UTC, anchor: subscription, then: {overage: 200}}
`)))
	clock := core.NewManualClock(time.Date(2026, 3, 17, 8, 59, 59, 0, time.UTC))
	book, err := plans.New(plans.Config{
		Set: set, Clock: clock.Now,
		Subscription: func(context.Context, string) (plans.Subscription, error) {
			return plans.Subscription{
				Plan: "pro", Anchor: time.Date(2026, 1, 17, 9, 0, 0, 0, time.UTC),
				Next: "free", Renewal: time.Date(2026, 3, 17, 9, 0, 0, 0, time.UTC),
			}, nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer book.Close()
	for range 2 {
		plan, err := book.For(context.Background(), "acme")
		if err != nil {
			log.Fatal(err)
		}
		tokens := plan.Algorithm("tokens").(core.Calendar)
		period, _ := tokens.Period(clock.Now())
		overage := plan.Algorithm("tokens.overage")
		fmt.Println(tokens.Limit, "until", period.Until.Format(time.DateTime), "and an overage:", overage != nil)
		clock.Advance(time.Second)
	}
	// Output:
	// 1000 until 2026-03-17 09:00:00 and an overage: true
	// 10 until 2026-04-17 09:00:00 and an overage: false
}
