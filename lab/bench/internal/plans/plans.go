// Package plans compares decisions by the limits of plans with decisions by limits of policies.
package plans

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/plans"

	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/report"
	"github.com/headgate/headgate/lab/bench/internal/server"
)

// limit is out of reach, and refills in the time of the other tables.
var limit = core.TokenBucket{Rate: 1_000_000, Per: 1_000_000 * time.Second, Burst: 1_000_000_000}

// Run measures decisions on one tenant and on many, by one caller and by many. The error also tells where this project
// decided wrongly; the table is there then all the same.
func Run(ctx context.Context, plan measure.Plan, s *server.Server) ([]report.Table, error) {
	client := s.Client()
	defer func() { _ = client.Close() }()
	onRedis, err := core.NewRedis(client, core.Config{})
	if err != nil {
		return nil, fmt.Errorf("make the gate: %w", err)
	}
	defer func() { _ = onRedis.Close(context.Background()) }() // nothing is under way any more
	inMemory, err := core.NewMemory(core.Config{MaxKeys: 4 * plan.Spread()})
	if err != nil {
		return nil, fmt.Errorf("make the gate: %w", err)
	}
	b, err := newBed(plan.Spread())
	if err != nil {
		return nil, err
	}
	defer b.book.Close()

	busy := plan.Busy()
	t := report.Table{
		Title: "A decision with a plan beside one without",
		Note: "Time of a decision by the limits of the tenant's plan over that of the same " +
			"decision by the policy's own limit: the " +
			"median of single decisions of one caller, which take turns, and all decisions of " +
			strconv.Itoa(busy) + " callers. " +
			"The tenants are known, as all but one decision a minute find them, and every hundredth has an override.",
		Columns: []string{
			"", "tenants", "with, us", "without, us", "with / without, 1 caller",
			fmt.Sprintf("with / without, %d callers", busy), "allocs with a plan",
		},
	}
	driver := &measure.Driver{Meter: s.Usage}
	var wrong error
	for _, c := range []struct {
		name     string
		gate     *core.Gate
		policies int
		keys     int
	}{
		{"1 policy, Redis", onRedis, 1, 1}, {"1 policy, Redis", onRedis, 1, plan.Spread()},
		{"3 policies, Redis", onRedis, 3, 1}, {"3 policies, Redis", onRedis, 3, plan.Spread()},
		{"1 policy, in memory", inMemory, 1, 1}, {"1 policy, in memory", inMemory, 1, plan.Spread()},
	} {
		with, without := b.decide(c.gate, b.with[:c.policies], true), b.decide(c.gate, b.without[:c.policies], false)
		contender := []measure.Contender{{Name: c.name, Kind: measure.Ours, Do: with}}
		var each [2]measure.Result
		for i, workers := range []int{1, busy} {
			for _, do := range []measure.Do{with, without} {
				measure.Fill(ctx, busy, c.keys, do)
			}
			// What is too short to be timed is driven in slices.
			load := measure.Load{Workers: workers, Keys: c.keys, Slice: plan.Slice, Untimed: c.gate == inMemory}
			results, err := driver.Rounds(ctx, 2*plan.Rounds, load, without, contender)
			if err != nil {
				return nil, err
			}
			each[i] = results[0]
			if _, denied, failed := each[i].Answered(); denied+failed > 0 {
				wrong = fmt.Errorf("%s: %d decisions are denied and %d failed", c.name, denied, failed)
			}
		}
		one, many := &each[0], &each[1]
		figure := measure.P50
		if c.gate == inMemory {
			figure = func(s *measure.Sample) float64 { return measure.Each(s) / 1000 }
		}
		t.Add(one.Label(), report.Count(float64(c.keys)), report.Number(one.Own(figure)),
			report.Number(measure.Reference(each[:1], figure)), report.Number(one.ToPing(figure)),
			report.Number(many.ToPing(measure.Each)), report.Number(one.Own(measure.Mallocs)))
	}
	return []report.Table{t}, wrong
}

// bed is policies with plans and policies without, which have the same limits.
type bed struct {
	book          *plans.Book
	with, without []*core.Policy
	tenants       []string
	keys          []core.Key
}

func newBed(tenants int) (*bed, error) {
	names := []string{"api", "search", "export"}
	limits := make(map[string]core.Algorithm)
	for _, name := range names {
		limits["with-"+name] = limit
	}
	set, err := plans.NewSet(plans.SetConfig{Default: "free", Plans: map[string]plans.Plan{
		"free": {}, "pro": {Limits: limits},
	}})
	if err != nil {
		return nil, fmt.Errorf("make the plans: %w", err)
	}
	b := &bed{keys: make([]core.Key, tenants), tenants: make([]string, tenants)}
	b.book, err = plans.New(plans.Config{
		Set: set, MaxTenants: 2 * tenants, TTL: time.Hour,
		Resolve: func(context.Context, string) (string, error) { return "pro", nil },
	})
	if err != nil {
		return nil, fmt.Errorf("make the plans: %w", err)
	}
	for _, name := range names {
		with, err := core.NewPolicy(core.PolicyConfig{
			Name: "with-" + name, Algorithm: core.PerHour(1),
		})
		if err != nil {
			return nil, fmt.Errorf("make a policy: %w", err)
		}
		without, err := core.NewPolicy(core.PolicyConfig{Name: "none-" + name, Algorithm: limit})
		if err != nil {
			return nil, fmt.Errorf("make a policy: %w", err)
		}
		b.with, b.without = append(b.with, with), append(b.without, without)
	}
	for i := range b.keys {
		tenant := "tenant-" + strconv.Itoa(i)
		b.tenants[i] = tenant
		if b.keys[i], err = core.NewKey(tenant, "user"); err != nil {
			return nil, fmt.Errorf("make a key: %w", err)
		}
		if i%100 != 1 {
			continue
		}
		o := plans.Override{Caps: map[string]plans.Cap{"streams": {Limit: 5}}}
		if err := b.book.SetOverride(context.Background(), tenant, o); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// decide decides by the plan of the key's tenant, or by the policies' own limits.
func (b *bed) decide(gate *core.Gate, policies []*core.Policy, planned bool) measure.Do {
	return func(ctx context.Context, _, key int) (bool, error) {
		var charges [3]core.Charge
		for i, p := range policies {
			charges[i] = core.Charge{Policy: p, Key: b.keys[key], Cost: 1}
		}
		if planned {
			plan, err := b.book.For(ctx, b.tenants[key])
			if err != nil {
				return false, err
			}
			for i, p := range policies {
				charges[i].Limit = plan.Algorithm(p.Name())
			}
		}
		d, err := gate.Decide(ctx, charges[:len(policies)]...)
		if err == nil {
			err = d.Cause
		}
		return d.Allowed, err
	}
}
