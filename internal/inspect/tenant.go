package inspect

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/plans"
)

// Tenant is one whose plan holds for a subject.
type Tenant struct {
	Name string
	Plan string // the name of its plan
	// Override replaces its plan or parts of it. It is nil if there is none.
	Override *plans.Override
}

// tenants returns the names by which the plans know a subject.
func (i *Inspector) tenants(key core.Key) []string {
	if i.cfg.Tenants != nil {
		return i.cfg.Tenants(key)
	}
	if parts := key.Parts(); len(parts) > 0 {
		return parts[:1]
	}
	return nil // Redis has the hash of a part alone
}

// plan fills in the tenants of a subject, and returns its limits, or nil.
func (i *Inspector) plan(ctx context.Context, s *Subject) (plan core.Plan) {
	var names []string
	if i.cfg.Plans != nil {
		names = i.tenants(s.Key)
		for _, name := range names {
			t, err := i.tenant(ctx, name)
			err = i.explain(ctx, err, overrideCommands)
			if s.fault("the plan of "+name, err); err == nil {
				s.Tenants = append(s.Tenants, t)
			}
		}
	}
	var err error
	switch {
	case i.cfg.Plan != nil:
		plan, err = i.cfg.Plan(ctx, s.Key)
	case len(names) > 0:
		plan, err = i.cfg.Plans.For(ctx, names[0], names[1:]...)
	}
	if s.fault("the limits of the plan", err); err != nil {
		s.PlanUnknown = true
		return nil
	}
	return plan
}

func (i *Inspector) tenant(ctx context.Context, name string) (t Tenant, err error) {
	t.Name = name
	if t.Plan, err = i.cfg.Plans.PlanName(ctx, name); err != nil {
		return t, err
	}
	o, is, err := i.cfg.Plans.Override(ctx, name)
	if is {
		t.Override = &o
	}
	return t, err
}

// fault notes why a part of the answer is missing, if err is not nil.
func (s *Subject) fault(what string, err error) {
	if err != nil {
		s.Faults = append(s.Faults, fmt.Errorf("%s: %w", what, Explain(err)))
	}
}
