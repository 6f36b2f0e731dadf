package llm

import (
	"net/http"

	"github.com/headgate/headgate/core"
)

// modelPlan is the plan of a customer for requests for one model. Limits and caps that the plan has
// for the model come before the others.
type modelPlan struct {
	core.Plan
	suffix string
}

// planByModel returns a func for nethttp.Config.Plan that narrows the plan to the model of the
// request.
func planByModel(plan func(*http.Request) (core.Plan, error)) func(*http.Request) (core.Plan, error) {
	if plan == nil {
		return nil
	}
	return func(r *http.Request) (core.Plan, error) {
		p, err := plan(r)
		if x := exchangeOf(r.Context()); p != nil && x != nil {
			p = &modelPlan{p, "/" + x.model()}
		}
		return p, err
	}
}

// Algorithm implements core.Plan.
func (p *modelPlan) Algorithm(policy string) core.Algorithm {
	if limit := p.Plan.Algorithm(policy + p.suffix); limit != nil {
		return limit
	}
	return p.Plan.Algorithm(policy)
}

// Cap implements core.Plan.
func (p *modelPlan) Cap(name string) (limit, share, floor int64) {
	limit, share, floor = p.Plan.Cap(name + p.suffix)
	if limit != 0 || share != 0 || floor != 0 {
		return limit, share, floor
	}
	return p.Plan.Cap(name)
}
