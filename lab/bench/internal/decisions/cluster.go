package decisions

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/report"
	"github.com/headgate/headgate/lab/bench/internal/server"
)

// RunCluster measures decisions on a cluster: as many keys as spread loads have, in all slots.
func RunCluster(ctx context.Context, plan measure.Plan, c *server.Cluster) ([]report.Table, error) {
	client := c.Client()
	defer func() { _ = client.Close() }()
	b, err := newBed("", client, 0)
	if err != nil {
		return nil, err
	}
	defer b.end()
	r := &runner{plan: plan, bed: b, driver: measure.Driver{Meter: c.Usage}}
	contenders, err := b.contenders(generous, "c", plan.Spread(), func(e *line) bool { return e.cluster })
	if err != nil {
		return nil, err
	}
	for _, one := range contenders {
		measure.Fill(ctx, plan.Busy(), plan.Spread(), one.Do)
	}
	var all [][]measure.Result
	workers := []int{1, plan.Busy(), plan.Workers[3]}
	for _, n := range workers {
		results, err := r.rounds(ctx, n, plan.Spread(), contenders)
		if err != nil {
			return nil, err
		}
		all = append(all, results)
	}
	t := report.Table{
		Title: fmt.Sprintf("A cluster of %d masters, %s keys, allowed", len(c.Nodes), report.Count(float64(plan.Spread()))),
		Note: fmt.Sprintf("Each key has a slot of its own, which all its policies share. Rates are over those of PINGs sent "+
			"to nodes at random by as many callers. CPU is that of all nodes, in microseconds per decision, with %d callers.",
			plan.Busy()) + r.rates(all, workers),
		Columns: []string{"", "p50 / PING @1", "p99 / PING @1"},
	}
	for _, n := range workers {
		t.Columns = append(t.Columns, "x PING rate @"+strconv.Itoa(n))
	}
	t.Columns = append(t.Columns, "CPU", "CPU / PING", "reads", "faults")
	for i, one := range all[0] {
		row := []string{one.Label(), report.Number(one.ToPing(measure.P50)), report.Number(one.ToPing(measure.P99))}
		for _, of := range all {
			row = append(row, report.Number(of[i].ToPing(measure.Rate)))
		}
		busy := all[1][i]
		t.Add(append(row, report.Number(busy.Own(measure.CPU)), report.Number(busy.ToPing(measure.CPU)),
			report.Number(busy.Own(measure.Reads)), report.Percent(busy.Own(measure.Faults)))...)
	}
	return []report.Table{t}, errors.Join(r.wrong...)
}
