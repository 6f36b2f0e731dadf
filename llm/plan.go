package llm

import (
	"net/http"

	"github.com/headgate/headgate/core"
)

// modelPlan is the plan of a customer for requests that one of some models answers. Limits and caps
// that the plan has for these models come before the others.
type modelPlan struct {
	core.Plan
	suffixes []string
}

// planByModel returns a func for nethttp.Config.Plan that narrows the plan to the models of the
// request.
func planByModel(plan func(*http.Request) (core.Plan, error)) func(*http.Request) (core.Plan, error) {
	if plan == nil {
		return nil
	}
	return func(r *http.Request) (core.Plan, error) {
		p, err := plan(r)
		if x := callOf(r.Context()); p != nil && x != nil {
			narrow := &modelPlan{Plan: p}
			for _, model := range x.request.Models {
				if !x.meter.cfg.names(model) {
					model = unknown
				}
				narrow.suffixes = append(narrow.suffixes, "/"+model)
			}
			p = narrow
		}
		return p, err
	}
}

// Algorithm implements core.Plan. Of several models one that is denied counts, and otherwise the first
// that has a limit.
func (p *modelPlan) Algorithm(policy string) (found core.Algorithm) {
	for _, suffix := range p.suffixes {
		limit := p.Plan.Algorithm(policy + suffix)
		if _, denied := limit.(core.DenyAll); denied || found == nil {
			found = limit
		}
	}
	if found == nil {
		return p.Plan.Algorithm(policy)
	}
	return found
}

// Cap implements core.Plan. Of several models the one with the lowest limit counts.
func (p *modelPlan) Cap(name string) (limit, share, floor int64) {
	for _, suffix := range p.suffixes {
		l, s, f := p.Plan.Cap(name + suffix)
		if stated := l != 0 || s != 0 || f != 0; stated && (limit == 0 || l != 0 && l < limit) {
			limit, share, floor = l, s, f
		}
	}
	if limit == 0 && share == 0 && floor == 0 {
		return p.Plan.Cap(name)
	}
	return limit, share, floor
}
