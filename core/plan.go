package core

// Plan is the limits of one customer. Ask for it once a request, and read every limit of the
// request from that one value, so that a plan that changes meanwhile decides no request by half:
//
//	d, err := gate.Decide(ctx,
//		core.Charge{Policy: minute, Key: key, Limit: plan.Algorithm("minute")},
//		core.Charge{Policy: month, Key: key, Limit: plan.Algorithm("month")},
//	)
//
// A nethttp.Guard does so for its rules and caps if it has a nethttp.Config.Plan. There a nil Plan
// leaves every policy and every cap its own limits. Package plans has Plans of a file, with
// overrides, and with chains of tenants such as organisation, team and user.
//
// A Plan is immutable and safe for concurrent use. When the limit of a key changes, each Algorithm
// says what becomes of the units that are spent. A limit of another Algorithm starts anew.
type Plan interface {
	// Algorithm returns the limit that the customer has under the policy of this name. Nil is the
	// limit of the policy. Algorithm is for the Limit of a Charge, and of an Adjustment, which
	// therefore corrects the count that the charges of the same plan spend.
	Algorithm(policy string) Algorithm

	// Cap returns how many slots of the cap of this name the customer may hold, and the share and
	// the floor by which the customer divides the slots of the cap before it with other customers.
	// Zero leaves the cap its own number.
	Cap(name string) (limit, share, floor int64)
}
