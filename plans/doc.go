// Package plans gives each tenant the limits of its plan: named sets of limits and caps, which
// change while the program runs.
//
//	p, err := plans.New(plans.Config{
//		File:    "plans.yaml",
//		Resolve: db.PlanOf, // from the name of a tenant to that of its plan
//		Client:  client, // for overrides that all processes obey
//	})
//	if err != nil {
//		return err
//	}
//	defer p.Close()
//	api, err := core.NewPolicy(core.PolicyConfig{
//		Name: "api", Algorithm: core.PerMinute(10), For: p.For("api"),
//	})
//
// The plans are a [Set], of a file in YAML or JSON (see [ParseSet]) or of NewSet. [Plans] watches
// the file. A bad file changes nothing, and [Config.Observe] is told every fault of it.
//
// Config.Resolve says which plan a tenant has, and the answer is kept for a while. If it fails, the
// last known plan of the tenant holds, and then the default plan. An [Override] replaces the plan
// of one tenant, or single limits and caps of it, until an end. Overrides are kept in Redis, and
// every process obeys a change within a second.
//
// A decision, and a request at a nethttp.Guard, is decided by one Set and by one state of each
// tenant: never by half of an old plan and half of a new one. See core.Snapshot.
//
// Plans.Shadow tries a new plan beside the old one: it counts, denies nothing, and
// an [EventDisagreement] reports each charge that the two decide differently.
package plans
