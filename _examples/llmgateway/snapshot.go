package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/core"
)

// snapshot is what the page shows.
type snapshot struct {
	Replica string         `json:"replica"`
	Models  []string       `json:"models"`
	Tenants []tenantStatus `json:"tenants"`
	Notice  string         `json:"notice,omitempty"`
}

type tenantStatus struct {
	Name    string         `json:"name"`
	Plan    string         `json:"plan"`
	Users   []string       `json:"users"`
	Budgets []budgetStatus `json:"budgets"`
	Limit   int64          `json:"limit"` // of streams
	Running []stream       `json:"running"`
	Waiting int            `json:"waiting"` // at all replicas
	Queued  []stream       `json:"queued"`  // at this one
}

type budgetStatus struct {
	Name   string     `json:"name"`
	Unit   string     `json:"unit"`
	Limit  int64      `json:"limit"`
	Left   int64      `json:"left"`             // below 0 is a debt
	Resets *time.Time `json:"resets,omitempty"` // of a spent budget of money
}

type stream struct {
	User    string `json:"user"`
	Request string `json:"request"`
	Replica string `json:"replica,omitempty"`
	Place   int    `json:"place"`
}

// status reads the limits of all tenants.
func (g *gateway) status(ctx context.Context) snapshot {
	s := snapshot{Replica: g.name, Models: slices.Sorted(maps.Keys(g.plans.models))}
	for _, t := range g.plans.tenants {
		now, err := g.tenantStatus(ctx, t)
		if err != nil {
			s.Notice = "The limits cannot be read: Redis does not answer."
			if errors.Is(err, core.ErrClosed) {
				s.Notice = "This replica is draining."
			}
		}
		s.Tenants = append(s.Tenants, now)
	}
	return s
}

func (g *gateway) tenantStatus(ctx context.Context, t *tenant) (tenantStatus, error) {
	tier, limits := g.tiers[t.plan], g.plans.plans[t.plan]
	s := tenantStatus{
		Name: t.name, Plan: t.plan, Limit: limits.StreamsPerTenant,
		Users: []string{}, Budgets: []budgetStatus{}, Running: []stream{}, Queued: g.board.queued(t),
	}
	for _, u := range t.users {
		s.Users = append(s.Users, u.name)
	}
	slices.SortFunc(s.Queued, func(a, b stream) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Place, b.Place))
	})
	key, err := core.NewKey(t.name)
	if err != nil {
		return s, err
	}
	if s.Budgets, err = g.budgets(ctx, tier, key); err != nil {
		return s, err
	}
	holders, waiting, err := tier.streams.Holders(ctx, key)
	s.Waiting = waiting
	for _, h := range holders {
		s.Running = append(s.Running, stream{
			User: h.Meta["user"], Request: h.Meta["request"], Replica: h.Meta["replica"],
		})
	}
	return s, err
}

func (g *gateway) budgets(ctx context.Context, t *tier, key core.Key) ([]budgetStatus, error) {
	all := []budgetStatus{}
	var charges []core.Charge
	for _, p := range t.budgets {
		charges = append(charges, core.Charge{Policy: p, Key: key, Cost: core.NoCost})
	}
	d, err := g.gate.Peek(ctx, charges...)
	if err = cmp.Or(err, d.Cause); err != nil {
		return all, err
	}
	for _, r := range d.Results() {
		unit := r.Policy.Unit()
		b := budgetStatus{
			Name: r.Policy.Name(), Unit: unit.String(), Limit: r.Limit, Left: r.Limit - r.Used,
		}
		if unit == core.UnitMicroDollars && r.ResetAfter > 0 {
			resets := time.Now().Add(r.ResetAfter).Round(time.Hour).UTC()
			b.Resets = &resets
		}
		all = append(all, b)
	}
	return all, nil
}
