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

// LimitText returns the limit of a subject as a file of plans has it. Periods of the subscription are
// told as such, so that an override that is made of the text does not freeze them.
func (i *Inspector) LimitText(s *Subject, l *Limit) string {
	if c, ok := l.Algorithm.(core.Calendar); ok && i.subscribed(s, l) {
		return LimitText(plans.Subscribed{Calendar: c})
	}
	return LimitText(l.Algorithm)
}

// subscribed reports whether the periods of a limit are those of the subscription of the first tenant.
func (i *Inspector) subscribed(s *Subject, l *Limit) bool {
	if len(s.Tenants) == 0 || !l.FromPlan {
		return false
	}
	t := &s.Tenants[0]
	if t.Override != nil {
		switch o := t.Override.Limits[l.Policy.Name()].(type) {
		case plans.Subscribed:
			return true
		case core.Calendar:
			if !o.Anchor.IsZero() {
				return false
			}
		}
	}
	plan, _ := i.cfg.Plans.Set().Plan(t.Plan)
	_, is := plan.Limits[l.Policy.Name()].(plans.Subscribed)
	return is
}

// fault notes why a part of the answer is missing, if err is not nil.
func (s *Subject) fault(what string, err error) {
	if err != nil {
		s.Faults = append(s.Faults, fmt.Errorf("%s: %w", what, Explain(err)))
	}
}
