package core_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/headgate/headgate/core"
)

// An event tells that a tenant has used 80 % of its day.
func ExampleThresholdEvent() {
	ctx := context.Background()
	events := make(chan string, 10)
	gate, err := core.NewMemory(core.Config{Observe: func(_ context.Context, e core.Event) {
		if at, ok := e.(*core.ThresholdEvent); ok {
			events <- fmt.Sprintf("%s: %d of %d, %d %%", at.Key, at.Used, at.Limit, at.Percent)
		}
	}})
	if err != nil {
		log.Fatal(err)
	}
	day, err := core.NewPolicy(core.PolicyConfig{
		Name:       "day",
		Algorithm:  core.Calendar{Limit: 1000, Every: core.PeriodDay, In: time.UTC},
		Thresholds: []int{80, 100},
	})
	if err != nil {
		log.Fatal(err)
	}
	tenant, err := core.NewKey("acme")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := gate.Decide(ctx, core.Charge{Policy: day, Key: tenant, Cost: 850}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-events)
	// Output: {acme}: 850 of 1000, 80 %
}
