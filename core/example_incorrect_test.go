package core_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/headgate/headgate/core"
)

// Do not take the error of Decide for the denial. A denial is a Decision, and its error is nil.
func ExampleGate_Decide_incorrect() {
	gate := core.Must(core.NewMemory(core.Config{Clock: new(core.ManualClock).Now}))
	api := core.Must(core.NewPolicy(core.PolicyConfig{Name: "api", Algorithm: core.PerMinute(1)}))
	user := core.Must(core.NewKey("user-1"))
	served := 0
	for range 5 {
		_, err := gate.Decide(context.Background(), core.Charge{Policy: api, Key: user, Cost: 1})
		if err != nil { // wrong: ask d.Allowed too
			continue
		}
		served++
	}
	fmt.Println(served, "of 5 served, with a limit of 1")
	// Output: 5 of 5 served, with a limit of 1
}

// Do not decide limits that belong together one after the other. The first stays spent when the
// second denies.
func ExampleGate_Decide_incorrectOneByOne() {
	gate := core.Must(core.NewMemory(core.Config{Clock: new(core.ManualClock).Now}))
	perUser := core.Must(core.NewPolicy(core.PolicyConfig{Name: "user", Algorithm: core.PerHour(10)}))
	perTenant := core.Must(core.NewPolicy(core.PolicyConfig{Name: "tenant", Algorithm: core.PerHour(3)}))
	tenant := core.Must(core.NewKey("acme"))
	ctx, served := context.Background(), 0
	for range 10 {
		user, err := gate.Decide(ctx, core.Charge{Policy: perUser, Key: tenant, Cost: 1})
		if err != nil || !user.Allowed {
			continue
		}
		// wrong: give both charges to one Decide
		all, err := gate.Decide(ctx, core.Charge{Policy: perTenant, Key: tenant, Cost: 1})
		if err != nil || !all.Allowed {
			continue
		}
		served++
	}
	d, err := gate.Peek(ctx, core.Charge{Policy: perUser, Key: tenant, Cost: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(served, "served,", d.At(0).Used, "spent")
	// Output: 3 served, 10 spent
}

// Do not act at once on a reservation for later. Wait for Delay, or reserve with a maxWait of 0.
func ExampleGate_Reserve_incorrect() {
	gate := core.Must(core.NewMemory(core.Config{Clock: new(core.ManualClock).Now}))
	calls := core.Must(core.NewPolicy(core.PolicyConfig{Name: "calls", Algorithm: core.PerMinute(1)}))
	upstream := core.Must(core.NewKey("payments"))
	charge := core.Charge{Policy: calls, Key: upstream, Cost: 1}
	for range 3 {
		r, d, err := gate.Reserve(context.Background(), time.Hour, charge)
		if err != nil || !d.Allowed { // wrong: d.Allowed says that the reservation was made
			return
		}
		fmt.Println("calls now, and should wait", r.Delay().Round(time.Second))
	}
	// Output:
	// calls now, and should wait 0s
	// calls now, and should wait 1m0s
	// calls now, and should wait 2m0s
}

// Do not send or sleep for RetryAfter before comparing it with Never, the wait of a request that no
// wait can admit.
func ExampleDecision_RetryAfter_incorrect() {
	gate := core.Must(core.NewMemory(core.Config{Clock: new(core.ManualClock).Now}))
	api := core.Must(core.NewPolicy(core.PolicyConfig{Name: "api", Algorithm: core.PerMinute(10)}))
	user := core.Must(core.NewKey("user-1"))
	charge := core.Charge{Policy: api, Key: user, Cost: 11} // more than the burst
	d, err := gate.Decide(context.Background(), charge)
	if err != nil {
		log.Fatal(err)
	}
	years := d.RetryAfter().Hours() / 24 / 365
	fmt.Println("Retry-After is centuries:", years > 200) // wrong
	fmt.Println("never:", d.RetryAfter() == core.Never)
	// Output:
	// Retry-After is centuries: true
	// never: true
}

// Do not join the parts of a key yourself. Give them to NewKey, which keeps different paths
// different.
func ExampleNewKey_incorrect() {
	joined := func(tenant, user string) core.Key { return core.Must(core.NewKey(tenant + ":" + user)) } // wrong
	parts := func(tenant, user string) core.Key { return core.Must(core.NewKey(tenant, user)) }
	fmt.Println(joined("acme", "eu:bob") == joined("acme:eu", "bob"))
	fmt.Println(parts("acme", "eu:bob") == parts("acme:eu", "bob"))
	// Output:
	// true
	// false
}
