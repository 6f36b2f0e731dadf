package decisions

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/report"
	"github.com/headgate/headgate/lab/bench/internal/server"
)

// runner measures decisions on one server.
type runner struct {
	plan   measure.Plan
	server *server.Server
	bed    *bed
	driver measure.Driver
	// wrong is this project's answers that were not the inevitable ones.
	wrong []error
}

// Run measures everything about decisions. The error also tells where this project decided wrongly;
// the tables are there then all the same.
func Run(ctx context.Context, plan measure.Plan, s *server.Server) ([]report.Table, []report.Panel, error) {
	client := s.Client()
	defer func() { _ = client.Close() }()
	b, err := newBed(s.Addr, client, 0)
	if err != nil {
		return nil, nil, err
	}
	defer b.end()
	r := &runner{plan: plan, server: s, bed: b, driver: measure.Driver{Meter: s.Usage}}
	hot, err := r.hot(ctx)
	if err != nil {
		return nil, nil, err
	}
	denied, err := r.denied(ctx)
	if err != nil {
		return nil, nil, err
	}
	spread, some, err := r.spread(ctx)
	if err != nil {
		return nil, nil, err
	}
	many, err := r.many(ctx)
	if err != nil {
		return nil, nil, err
	}
	exact, err := r.exact(ctx)
	if err != nil {
		return nil, nil, err
	}
	sizes, err := r.sizes(ctx)
	if err != nil {
		return nil, nil, err
	}
	tables := []report.Table{
		r.oneCaller(hot[0]), r.deniedTable(denied), r.hotTable(hot), r.spreadTable(spread),
		r.serverTable(hot[2], spread[1]), r.keysTable(hot[2], some, spread[1], many), exact, sizes,
	}
	panels := []report.Panel{
		r.panel("one key", hot, 0), r.panel(report.Count(float64(plan.Spread()))+" keys", spread, 1),
	}
	return tables, panels, errors.Join(r.wrong...)
}

// hot is calls on one key by each number of callers.
func (r *runner) hot(ctx context.Context) ([][]measure.Result, error) {
	q := generous
	q.brief = true
	contenders, err := r.bed.contenders(q, "a", 1, nil)
	if err != nil {
		return nil, err
	}
	var all [][]measure.Result
	for _, workers := range r.plan.Workers {
		results, err := r.rounds(ctx, workers, 1, contenders)
		if err != nil {
			return nil, err
		}
		all = append(all, results)
	}
	return all, nil
}

// denied is calls on one exhausted key, by one caller and by many.
func (r *runner) denied(ctx context.Context) ([][]measure.Result, error) {
	contenders, err := r.bed.contenders(exhausted, "d", 1, nil)
	if err != nil {
		return nil, err
	}
	for _, c := range contenders {
		measure.Fill(ctx, 1, 1, c.Do)
	}
	var all [][]measure.Result
	for _, workers := range []int{1, r.plan.Busy()} {
		results, err := r.rounds(ctx, workers, 1, contenders)
		if err != nil {
			return nil, err
		}
		all = append(all, results)
	}
	return all, nil
}

// spread is calls on many keys by each number of callers but one, and on some of them by one number of callers.
func (r *runner) spread(ctx context.Context) (all [][]measure.Result, some []measure.Result, err error) {
	contenders, err := r.bed.contenders(generous, "s", r.plan.Spread(), nil)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range contenders {
		measure.Fill(ctx, r.plan.Busy(), r.plan.Spread(), c.Do)
	}
	for _, workers := range r.plan.Workers[1:] {
		results, err := r.rounds(ctx, workers, r.plan.Spread(), contenders)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, results)
	}
	some, err = r.rounds(ctx, r.plan.Busy(), r.plan.Keys[1], contenders)
	if err != nil {
		return nil, nil, err
	}
	return all, some, r.server.Clear(ctx)
}

// many is calls on the largest number of keys, by those contenders that stand for the others.
func (r *runner) many(ctx context.Context) ([]measure.Result, error) {
	keys := r.plan.Keys[3]
	contenders, err := r.bed.contenders(generous, "m", keys, func(e *line) bool { return e.many })
	if err != nil {
		return nil, err
	}
	for _, c := range contenders {
		measure.Fill(ctx, r.plan.Busy(), keys, c.Do)
	}
	results, err := r.rounds(ctx, r.plan.Busy(), keys, contenders)
	if err != nil {
		return nil, err
	}
	return results, r.server.Clear(ctx)
}

func (r *runner) rounds(
	ctx context.Context, workers, keys int, contenders []measure.Contender,
) ([]measure.Result, error) {
	load := measure.Load{Workers: workers, Keys: keys, Slice: r.plan.Slice}
	rounds := r.plan.Rounds
	if workers == 1 {
		// What a lone call costs depends most on what else the machine does at that moment.
		rounds *= 2
	}
	results, err := r.driver.Rounds(ctx, rounds, load, r.bed.ping(), contenders)
	for _, result := range results {
		right, wrong, _ := result.Answered()
		if result.Kind == measure.Ours && (wrong > 0 || right == 0) {
			r.wrong = append(r.wrong, fmt.Errorf("%s, %d callers, %d keys: %d answers are right and %d wrong",
				result.Name, workers, keys, right, wrong))
		}
	}
	return results, err
}
