package plans_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/plans"
)

func Example() {
	set, err := plans.ParseSet([]byte(`
default: free
plans:
  free: {limits: {api: {rate: 2, per: 1m}}}
  pro: {limits: {api: {rate: 100, per: 1m}}}
`))
	if err != nil {
		log.Fatal(err)
	}
	book, err := plans.New(plans.Config{
		Set: set, // or File, which is watched
		Resolve: func(_ context.Context, tenant string) (string, error) {
			if tenant == "acme" {
				return "pro", nil
			}
			return "", nil // the default plan
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer book.Close()
	gate, err := core.NewMemory(core.Config{})
	if err != nil {
		log.Fatal(err)
	}
	api, err := core.NewPolicy(core.PolicyConfig{
		Name: "api", Algorithm: core.PerMinute(1), // of a plan that does not name it
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, tenant := range []string{"acme", "globex"} {
		user, err := core.NewKey(tenant, "user-1")
		if err != nil {
			log.Fatal(err)
		}
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
	set, err := plans.NewSet(plans.SetConfig{Default: "free", Plans: map[string]plans.Plan{
		"free": {Limits: map[string]core.Algorithm{"api": core.PerMinute(10)}},
		"pro":  {Limits: map[string]core.Algorithm{"api": core.PerMinute(100)}},
	}})
	if err != nil {
		log.Fatal(err)
	}
	book, err := plans.New(plans.Config{Set: set}) // with a Client, all processes obey it
	if err != nil {
		log.Fatal(err)
	}
	defer book.Close()
	ctx := context.Background()
	trial := plans.Override{Plan: "pro", Until: time.Now().Add(14 * 24 * time.Hour)}
	if err := book.SetOverride(ctx, "acme", trial); err != nil {
		log.Fatal(err)
	}
	fmt.Println(book.PlanName(ctx, "acme"))
	fmt.Println(book.SetOverride(ctx, "acme", plans.Override{Plan: "gold"}))
	// Output:
	// pro <nil>
	// plans: unknown plan: override.plan is "gold"
}
