package core_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
)

// A customer buys more of this month's quota. The notice of it may come twice.
func ExampleGate_Adjust() {
	gate := core.Must(core.NewMemory(core.Config{}))
	month := core.Calendar{Limit: 1000, Every: core.PeriodMonth, In: time.UTC}
	tokens := core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "tokens", Algorithm: month, Raisable: true,
	}))
	acme, ctx := core.Must(core.NewKey("acme")), context.Background()
	thisMonth, err := month.Period(time.Now())
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		applied, err := gate.Adjust(ctx, core.Adjustment{
			ID: "invoice-4711", Policy: tokens, Key: acme, Raise: 500, Until: thisMonth.Until,
		})
		fmt.Println(applied, err)
	}
	d, err := gate.Peek(ctx, core.Charge{Policy: tokens, Key: acme, Cost: core.NoCost})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := d.At(0)
	fmt.Println(r.Limit, r.Raised)
	// Output:
	// true <nil>
	// false <nil>
	// 1500 500
}

// The user's own database knows what was used before the Gate has seen the key.
func ExamplePolicyConfig_ledger() {
	gate := core.Must(core.NewMemory(core.Config{}))
	tokens := core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "tokens", Algorithm: core.Calendar{Limit: 1000, Every: core.PeriodMonth, In: time.UTC},
		OnFailure: core.FailClosed,
		Ledger: func(ctx context.Context, key core.Key, period core.Span) (used int64, err error) {
			return 900, nil // SELECT sum(tokens) ... WHERE at >= period.From AND at < period.Until
		},
	}))
	acme, ctx := core.Must(core.NewKey("acme")), context.Background()
	d, err := gate.Decide(ctx, core.Charge{Policy: tokens, Key: acme, Cost: 40})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := d.At(0)
	fmt.Println(d.Allowed, r.Used, r.Remaining)
	// Output: true 940 60
}
