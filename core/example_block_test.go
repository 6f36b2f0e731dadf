package core_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/once"
)

// Three failed logins within ten minutes block a user for an hour.
func ExampleBlock() {
	ctx := context.Background()
	gate, err := core.NewMemory(core.Config{})
	if err != nil {
		log.Fatal(err)
	}
	bans, err := core.NewPolicy(core.PolicyConfig{Name: "bans", Algorithm: core.Block{
		Strikes: 3, Within: 10 * time.Minute, For: time.Hour, Most: 24 * time.Hour,
	}})
	if err != nil {
		log.Fatal(err)
	}
	user, err := core.NewKey("user-1")
	if err != nil {
		log.Fatal(err)
	}
	for range 3 { // each strike costs 1
		if _, err := gate.Decide(ctx, core.Charge{Policy: bans, Key: user, Cost: 1}); err != nil {
			log.Fatal(err)
		}
	}
	d, err := gate.Decide(ctx, core.Charge{Policy: bans, Key: user, Cost: core.NoCost}) // only asks
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Allowed, d.RetryAfter().Round(time.Minute))
	// Output: false 1h0m0s
}

// The event of a webhook is handled once, however often it is sent.
func ExampleOnce() {
	ctx := context.Background()
	gate, err := core.NewMemory(core.Config{})
	if err != nil {
		log.Fatal(err)
	}
	events, err := once.New(gate, once.Config{Name: "events", Window: 24 * time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	id, err := core.NewKey("evt_1")
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		err := events.Do(ctx, id, time.Second, func(context.Context) error {
			fmt.Println("handled")
			return nil
		})
		if errors.Is(err, once.ErrDone) {
			fmt.Println("done already")
		} else if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// handled
	// done already
	// done already
}
