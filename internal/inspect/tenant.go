package inspect

import (
	"context"
	"fmt"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/plans"
)

// Tenant is one whose plan holds for a subject.
type Tenant struct {
	Name string
	Plan string // the name of its plan
	// Subscription is when its periods begin, and which plan follows.
	Subscription plans.Subscription
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

// plan fills in the tenants of a subject, and returns its limits, which may be nil, and whether they are
// known.
func (i *Inspector) plan(ctx context.Context, s *Subject) (plan core.Plan, known bool) {
	var names []string
	if i.cfg.Plans != nil {
		names = i.tenants(s.Key)
		for _, name := range names {
			t, err := i.tenant(ctx, name)
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
	s.fault("the limits of the plan", err)
	return plan, err == nil
}

func (i *Inspector) tenant(ctx context.Context, name string) (t Tenant, err error) {
	t.Name = name
	if t.Subscription, err = i.cfg.Plans.Subscription(ctx, name); err != nil {
		return t, err
	}
	t.Plan = t.Subscription.Plan
	o, is, err := i.cfg.Plans.Override(ctx, name)
	if is {
		t.Override = &o
	}
	return t, err
}

// Periods says when the periods of a tenant begin, and which plan it will have. It is empty if nothing is
// known of that.
func (t *Tenant) Periods() string {
	var all []string
	if at := t.Subscription.Anchor; !at.IsZero() {
		all = append(all, fmt.Sprintf("Its periods begin as on %s, %v.", at.Format("2 January 2006 at 15:04:05"),
			at.Location()))
	}
	if s := &t.Subscription; s.Next != "" {
		all = append(all, fmt.Sprintf("Its plan will be %s from %s UTC on.", s.Next,
			s.Renewal.UTC().Format("2 January 2006 at 15:04:05")))
	}
	return strings.Join(all, " ")
}

// LimitText returns the limit of a subject that has Tenants, as a file of plans has it: as the override or
// the plan of the outermost tenant states it, so that another override made of it keeps the periods.
func (i *Inspector) LimitText(s *Subject, l *Limit) string {
	t, name, limit := &s.Tenants[0], l.Policy.Name(), l.Algorithm
	plan, _ := i.cfg.Plans.Set().Plan(t.Plan)
	if of := plan.Limits[name]; of != nil {
		limit = of
	}
	if t.Override != nil && t.Override.Limits[name] != nil {
		limit = t.Override.Limits[name]
	}
	return LimitText(limit)
}

// fault notes why a part of the answer is missing, if err is not nil.
func (s *Subject) fault(what string, err error) {
	if err != nil {
		s.Faults = append(s.Faults, fmt.Errorf("%s: %w", what, Explain(err)))
	}
}
