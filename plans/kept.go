package plans

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/core"
)

// KeptPeriod is what a tenant used of a limit in one period.
type KeptPeriod struct {
	Period core.Span
	Used   int64
}

// Kept returns what a tenant used of a limit around a time, also in periods that have ended, such as for a
// bill: what the Guard of nethttp.Quotas has admitted under the limit of that name, tokens or
// tokens.overage, as long as the file keeps it. There is an element for each period in which something was
// used, in the order of their ends: one, or several if the tenant had plans of different periods, such as
// a month and a week.
//
// The periods are those of all plans that keep the limit, by the Anchor that the tenant has now and by
// earlier ones, and those of its Override. So pass an Anchor that has moved, and read what an Override
// with other periods has counted before it ends. If no plan keeps the limit, Kept returns an error.
func (b *Book) Kept(
	ctx context.Context, gate *core.Gate, tenant, limit string, at time.Time, earlier ...time.Time,
) ([]KeptPeriod, error) {
	policy, err := core.NewPolicy(core.PolicyConfig{Name: KeptName(limit), Algorithm: core.DenyAll{}, Shadow: true})
	if err != nil {
		return nil, fmt.Errorf("plans: %w", err)
	}
	candidates, err := b.everyPlan(ctx, tenant, earlier)
	if err != nil {
		return nil, err
	}
	var all []KeptPeriod
	var asks []core.Charge
	for _, plan := range candidates {
		keeps := plan.Algorithm(policy.Name())
		calendar, ok := plan.Algorithm(limit).(core.Calendar)
		if !ok || keeps == nil {
			continue
		}
		period, err := calendar.Period(at)
		if err != nil {
			return nil, fmt.Errorf("plans: %w", err)
		}
		if slices.ContainsFunc(all, func(k KeptPeriod) bool { return k.Period.String() == period.String() }) {
			continue
		}
		key, err := core.NewKey(tenant, period.String())
		if err != nil {
			return nil, fmt.Errorf("plans: %w", err)
		}
		all = append(all, KeptPeriod{Period: period})
		asks = append(asks, core.Charge{Policy: policy, Key: key, Cost: core.NoCost, Limit: keeps})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("plans: no plan keeps periods of %.80q", limit)
	}
	if err := peek(ctx, gate, asks, all); err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(k KeptPeriod) bool { return k.Used == 0 })
	slices.SortStableFunc(all, func(a, b KeptPeriod) int { return a.Period.Until.Compare(b.Period.Until) })
	return all, nil
}

// everyPlan returns the plan that a tenant has, and those that it could have, with the periods of its
// Anchor and of earlier ones.
func (b *Book) everyPlan(ctx context.Context, tenant string, earlier []time.Time) ([]core.Plan, error) {
	now, err := b.For(ctx, tenant)
	if err != nil {
		return nil, err
	}
	s, err := b.know(ctx, tenant)
	if err != nil {
		return nil, err
	}
	set := b.Set()
	subscriptions := []*subscription{s.subscription}
	for _, anchor := range earlier {
		before, err := subscriptionOf(set, Subscription{Anchor: anchor})
		if err != nil {
			return nil, err
		}
		subscriptions = append(subscriptions, before)
	}
	all := []core.Plan{now}
	for _, name := range set.Names() {
		for _, of := range subscriptions {
			all = append(all, set.plans[name].begun(of))
		}
	}
	return all, nil
}

// peek sets what was used under charges that ask.
func peek(ctx context.Context, gate *core.Gate, asks []core.Charge, all []KeptPeriod) error {
	for some := range slices.Chunk(asks, core.MaxCharges) {
		d, err := gate.Peek(ctx, some...)
		if err != nil || d.Cause != nil {
			return fmt.Errorf("plans: kept periods: %w", errors.Join(err, d.Cause))
		}
		for i, r := range d.Results() {
			all[i].Used = r.Used
		}
		all = all[len(some):]
	}
	return nil
}
