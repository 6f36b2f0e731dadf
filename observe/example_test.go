package observe_test

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe"
)

func ExampleAll() {
	denials := 0
	count := func(_ context.Context, e core.Event) {
		if d, ok := e.(*core.DecisionEvent); ok && !d.Decision.Allowed {
			denials++
		}
	}
	print := func(_ context.Context, e core.Event) { fmt.Println(e.EventName()) }
	gate := core.Must(core.NewMemory(core.Config{Observe: observe.All(count, print)}))
	policy := core.Must(core.NewPolicy(core.PolicyConfig{Name: "export", Algorithm: core.DenyAll{}}))
	key := core.Must(core.NewKey("acme"))
	_, _ = gate.Decide(context.Background(), core.Charge{Policy: policy, Key: key, Cost: 1})
	fmt.Println(denials, "denied")
	// Output:
	// decide
	// 1 denied
}
