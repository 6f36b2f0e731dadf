package recipes

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/plans"
)

// Shed refuses the bulk requests of a tenant while only the last fifth is left, which is for the
// interactive ones: 20 of 100 requests a minute, and 2 of 10 at a time. No request waits.
func Shed(gate *core.Gate, next http.Handler, isBulk func(*http.Request) bool) http.Handler {
	requests := core.Must(core.NewPolicy(core.PolicyConfig{Name: "requests", Algorithm: core.AnyMinute(100)}))
	bulk := plans.Plan{ // it counts on the same keys
		Limits: map[string]core.Algorithm{"requests": core.AnyMinute(80)},
		Caps:   map[string]plans.Cap{"running": {Limit: 8}},
	}
	guard := core.Must(nethttp.NewGuard(nethttp.Config{
		Gate:  gate,
		Rules: []nethttp.Rule{{Policy: requests, Key: byTenant}},
		Slot: &nethttp.Slot{
			Semaphore: core.Must(semaphore.New(gate, semaphore.Config{Name: "running"})),
			Caps:      []nethttp.Cap{{Name: "running", Key: byTenant, Limit: 10}},
		},
		Plan: func(r *http.Request) (core.Plan, error) {
			if isBulk(r) {
				return bulk, nil
			}
			return nil, nil
		},
	}))
	return guard.Handler(next)
}

// Floors divides the 10 slots of a tenant among requests that wait: the next slots go to interactive
// ones while they have fewer than 6, and then to bulk while it has none. Bulk has at most 8.
func Floors(gate *core.Gate, next http.Handler, isBulk func(*http.Request) bool) http.Handler {
	bulk := plans.Plan{Caps: map[string]plans.Cap{"class": {Limit: 8, Floor: 1}}}
	guard := core.Must(nethttp.NewGuard(nethttp.Config{
		Slot: &nethttp.Slot{
			Semaphore: core.Must(semaphore.New(gate, semaphore.Config{Name: "classes"})),
			MaxWait:   30 * time.Second,
			Caps: []nethttp.Cap{
				{Name: "running", Key: byTenant, Limit: 10},
				{Name: "class", Limit: 10, Floor: 6, Key: func(r *http.Request) (string, error) {
					if isBulk(r) {
						return "bulk", nil
					}
					return "interactive", nil
				}},
			},
		},
		Plan: func(r *http.Request) (core.Plan, error) {
			if isBulk(r) {
				return bulk, nil
			}
			return nil, nil
		},
	}))
	return guard.Handler(next)
}
