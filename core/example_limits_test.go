package core_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/headgate/headgate/core"
)

// Charge.Limit is for callers that know the limit already, for example from a verified token. The
// key may then be a hash.
func ExampleCharge_limit() {
	gate, err := core.NewMemory(core.Config{Clock: new(core.ManualClock).Now})
	if err != nil {
		log.Fatal(err)
	}
	api, err := core.NewPolicy(core.PolicyConfig{Name: "api", Algorithm: core.PerMinute(60)})
	if err != nil {
		log.Fatal(err)
	}
	key, err := core.NewKey("Zm9vYmFy")
	if err != nil {
		log.Fatal(err)
	}
	// nil means the policy's limit.
	for _, limit := range []core.Algorithm{core.PerMinute(1000), nil} {
		charge := core.Charge{Policy: api, Key: key, Cost: 1, Limit: limit}
		d, err := gate.Decide(context.Background(), charge)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.At(0).Remaining, "of", d.At(0).Limit)
	}
	// Output:
	// 999 of 1000
	// 58 of 60
}

// A Calendar follows a customer's billing periods. Redis's clock decides which period it is.
func ExampleCalendar() {
	clock := core.NewManualClock(time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC))
	gate, err := core.NewMemory(core.Config{Clock: clock.Now})
	if err != nil {
		log.Fatal(err)
	}
	plan, err := core.NewPolicy(core.PolicyConfig{Name: "plan", Algorithm: core.Calendar{
		Limit: 10_000, Every: core.PeriodMonth, In: time.UTC,
		Anchor: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC),
	}})
	if err != nil {
		log.Fatal(err)
	}
	tenant, err := core.NewKey("acme")
	if err != nil {
		log.Fatal(err)
	}
	d, err := gate.Decide(context.Background(), core.Charge{Policy: plan, Key: tenant, Cost: 1})
	if err != nil {
		log.Fatal(err)
	}
	end := clock.Now().UTC().Add(d.At(0).ResetAfter)
	fmt.Println("the period ends on", end.Format(time.DateOnly))
	// Output: the period ends on 2026-11-30
}

// SpendUpTo takes n units, or as many as there are.
func ExampleGate_SpendUpTo() {
	gate, err := core.NewMemory(core.Config{Clock: new(core.ManualClock).Now})
	if err != nil {
		log.Fatal(err)
	}
	mails, err := core.NewPolicy(core.PolicyConfig{Name: "mails", Algorithm: core.PerHour(100)})
	if err != nil {
		log.Fatal(err)
	}
	tenant, err := core.NewKey("acme")
	if err != nil {
		log.Fatal(err)
	}
	charge := core.Charge{Policy: mails, Key: tenant, Cost: 1}
	for range 3 {
		granted, d, err := gate.SpendUpTo(context.Background(), 60, charge)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(granted, d.Allowed)
	}
	// Output:
	// 60 true
	// 40 true
	// 0 false
}
