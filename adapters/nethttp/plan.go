package nethttp

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/headgate/headgate/core"
)

// Plan returns the plan of Config.Plan by which the request was decided, or nil. A handler reads
// the limits of what it decides later from it, such as of a job that the request starts: so they
// are of the same plan as those of the request.
func (a *Admission) Plan() core.Plan {
	if a == nil {
		return nil
	}
	return a.plan
}

// derivePlan asks for the plan of the request once, if the Guard has a func for it.
func (x *Exchange) derivePlan(r *http.Request) error {
	if x.planned || x.guard.cfg.Plan == nil {
		return nil
	}
	plan, err := x.guard.cfg.Plan(r)
	if err != nil {
		return fmt.Errorf("nethttp: plan: %w", err)
	}
	x.plan, x.planned = plan, true
	return nil
}

// numbersOf returns the limit, the share and the floor of a cap for the request. The semaphore tells which
// are not valid.
func (x *Exchange) numbersOf(c *Cap) (limit, share, floor int64) {
	if x.plan != nil && c.Name != "" {
		limit, share, floor = x.plan.Cap(c.Name)
	}
	return cmp.Or(limit, c.Limit), cmp.Or(share, c.Share), cmp.Or(floor, c.Floor)
}
