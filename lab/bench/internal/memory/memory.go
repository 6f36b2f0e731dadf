// Package memory compares the gate that keeps its state in the process with golang.org/x/time/rate.
package memory

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/headgate/headgate/core"

	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/report"
)

// Run measures decisions on one key and on as many as a spread load has, by one caller and by two. The error also tells
// where this project decided wrongly; the table is there then all the same.
func Run(ctx context.Context, plan measure.Plan) ([]report.Table, error) {
	spread := plan.Spread()
	t := report.Table{
		Title: "Decisions in memory",
		Note: "Nanoseconds per decision, by one caller and by two at the same time; the latter " +
			"is the time of both over the " +
			"decisions of both. Choosing a key and counting is in all of them, and alone the " +
			"line nothing. rate.Limiter knows no " +
			"keys, so that a map of limiters stands beside it.",
		Columns: []string{"", "keys", "ns, 1 caller", "ns, 2 callers", "2 / 1", "allocs"},
	}
	all, err := contenders(spread)
	if err != nil {
		return nil, err
	}
	var driver measure.Driver
	nothing := func(context.Context, int, int) (bool, error) { return true, nil }
	var wrong error
	for _, keys := range []int{1, spread} {
		var each [2][]measure.Result
		for i := range each {
			for _, c := range all {
				measure.Fill(ctx, 1, keys, c.Do)
			}
			load := measure.Load{Workers: i + 1, Keys: keys, Slice: plan.Slice, Untimed: true}
			if each[i], err = driver.Rounds(ctx, plan.Rounds, load, nothing, all); err != nil {
				return nil, err
			}
		}
		t.Add("floor: nothing", report.Count(float64(keys)), report.Number(measure.Reference(each[0], measure.Each)),
			report.Number(measure.Reference(each[1], measure.Each)), "", "0")
		for i, one := range each[0] {
			two := each[1][i]
			if keys > 1 && !several[one.Name] {
				continue
			}
			if _, n, failed := one.Answered(); one.Kind == measure.Ours && n+failed > 0 {
				wrong = fmt.Errorf("%s denied or failed %d decisions that have room", one.Name, n+failed)
			}
			t.Add(one.Label(), report.Count(float64(keys)), report.Number(one.Own(measure.Each)),
				report.Number(two.Own(measure.Each)), report.Number(two.Own(measure.Each)/one.Own(measure.Each)),
				report.Number(one.Own(measure.Mallocs)))
		}
	}
	return []report.Table{t}, wrong
}

const (
	gateName   = "Gate in memory, TokenBucket"
	brokenName = "Gate in memory, TokenBucket, state with a fraction"
	mapName    = "sync.Map of rate.Limiter"
	bareName   = "rate.Limiter, no keys"
)

// several is what knows keys.
var several = map[string]bool{gateName: true, mapName: true}

func contenders(spread int) ([]measure.Contender, error) {
	// Four times the keys, so that none is forgotten: the default bound is for as many as it says.
	gate, err := core.NewMemory(core.Config{MaxKeys: 4 * spread})
	if err != nil {
		return nil, fmt.Errorf("make the gate: %w", err)
	}
	const limit = 1 << 40
	policy, err := core.NewPolicy(core.PolicyConfig{
		Name: "api", Algorithm: core.TokenBucket{Rate: 1000, Per: time.Second, Burst: limit},
	})
	if err != nil {
		return nil, fmt.Errorf("make the policy: %w", err)
	}
	broken, err := core.NewPolicy(core.PolicyConfig{Name: "broken", Algorithm: core.PerHour(limit)})
	if err != nil {
		return nil, fmt.Errorf("make the policy: %w", err)
	}
	names, keys := make([]string, spread), make([]core.Key, spread)
	for i := range names {
		names[i] = "user-" + strconv.Itoa(i)
		if keys[i], err = core.NewKey(names[i]); err != nil {
			return nil, fmt.Errorf("make a key: %w", err)
		}
	}
	bare := rate.NewLimiter(rate.Limit(limit), limit)
	var limiters sync.Map
	by := func(p *core.Policy) measure.Do {
		return func(ctx context.Context, _, key int) (bool, error) {
			d, err := gate.Decide(ctx, core.Charge{Policy: p, Key: keys[key], Cost: 1})
			return d.Allowed, err
		}
	}
	return []measure.Contender{
		{Name: gateName, Kind: measure.Ours, Do: by(policy)}, {Name: brokenName, Kind: measure.Ours, Do: by(broken)},
		{Name: bareName, Kind: measure.Peer, Do: func(context.Context, int, int) (bool, error) { return bare.Allow(), nil }},
		{Name: mapName, Kind: measure.Peer, Do: func(_ context.Context, _, key int) (bool, error) {
			l, ok := limiters.Load(names[key])
			if !ok {
				l, _ = limiters.LoadOrStore(names[key], rate.NewLimiter(rate.Limit(limit), limit))
			}
			return l.(*rate.Limiter).Allow(), nil
		}},
	}, nil
}
