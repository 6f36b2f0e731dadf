package core_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/headgate/headgate/core"
)

// A Peek of nothing tells how a key stands.
func ExampleGate_Peek() {
	ctx := context.Background()
	gate, err := core.NewMemory(core.Config{})
	if err != nil {
		log.Fatal(err)
	}
	requests := core.Must(core.NewPolicy(core.PolicyConfig{Name: "requests", Algorithm: core.AnyHour(100)}))
	tokens := core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "tokens", Algorithm: core.Calendar{Limit: 10_000, Every: core.PeriodYear, In: time.UTC},
	}))
	tenant, err := core.NewKey("acme")
	if err != nil {
		log.Fatal(err)
	}
	_, err = gate.Decide(ctx,
		core.Charge{Policy: requests, Key: tenant, Cost: 1},
		core.Charge{Policy: tokens, Key: tenant, Cost: 350})
	if err != nil {
		log.Fatal(err)
	}
	d, err := gate.Peek(ctx,
		core.Charge{Policy: requests, Key: tenant, Cost: core.NoCost},
		core.Charge{Policy: tokens, Key: tenant, Cost: core.NoCost})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range d.Results() {
		fmt.Println(r.Policy.Name(), r.Used, "of", r.Limit)
	}
	// Output:
	// requests 1 of 100
	// tokens 350 of 10000
}
