// Package plans gives each tenant the limits of its plan: named sets of limits and caps, which
// change while the program runs.
//
//	book, err := plans.New(plans.Config{
//		File:    "plans.yaml",
//		Resolve: db.PlanOf, // from the name of a tenant to that of its plan
//		Client:  client, // for overrides that all processes obey
//	})
//	if err != nil {
//		return err
//	}
//	defer book.Close()
//	plan, err := book.For(ctx, "acme") // once a request
//	if err != nil {
//		return err
//	}
//	d, err := gate.Decide(ctx, core.Charge{Policy: api, Key: key, Limit: plan.Algorithm("api")})
//
// The plans are a [Set], of a file in YAML or JSON (see [ParseSet]) or of NewSet. A [Book] watches
// the file. A bad file changes nothing, and [Config.Observe] is told every fault of it.
//
// Config.Resolve says which plan a tenant has, and the answer is kept for a while. If it fails, the
// last known plan of the tenant holds, and then the default plan. Config.Subscription says besides
// when the tenant's periods begin, and which plan follows: see [Subscription]. An [Override] replaces the plan
// of one tenant, or single limits and caps of it, until an end. Overrides are kept in Redis, and
// every process obeys a change within a second.
//
// [Book.For] returns a [core.Plan]: one Set and one state of each tenant, which do not change. So a
// request is never decided by half of an old plan and half of a new one. A plan may be that of a
// chain of tenants, such as an organisation, a team and a user.
package plans
