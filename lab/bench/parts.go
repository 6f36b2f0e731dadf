package main

import (
	"context"

	"github.com/headgate/headgate/lab/bench/internal/decisions"
	"github.com/headgate/headgate/lab/bench/internal/filters"
	"github.com/headgate/headgate/lab/bench/internal/llm"
	"github.com/headgate/headgate/lab/bench/internal/locks"
	"github.com/headgate/headgate/lab/bench/internal/lone"
	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/memory"
	"github.com/headgate/headgate/lab/bench/internal/middleware"
	"github.com/headgate/headgate/lab/bench/internal/outbound"
	"github.com/headgate/headgate/lab/bench/internal/plans"
	"github.com/headgate/headgate/lab/bench/internal/report"
	"github.com/headgate/headgate/lab/bench/internal/server"
	"github.com/headgate/headgate/lab/bench/internal/weight"
)

// part is what can be measured alone, on servers of its own. With tables, its error is of wrong answers only.
type part struct {
	name, title string
	run         func(context.Context, measure.Plan) ([]report.Table, []report.Panel, error)
}

// onServer starts a server for a part without panels.
func onServer(
	run func(context.Context, measure.Plan, *server.Server) ([]report.Table, error),
) func(context.Context, measure.Plan) ([]report.Table, []report.Panel, error) {
	return func(ctx context.Context, plan measure.Plan) ([]report.Table, []report.Panel, error) {
		s, err := server.Start(ctx)
		if err != nil {
			return nil, nil, err
		}
		defer s.Stop()
		tables, err := run(ctx, plan, s)
		return tables, nil, err
	}
}

var parts = []part{
	{"decisions", "Decisions on Redis", func(
		ctx context.Context, plan measure.Plan,
	) ([]report.Table, []report.Panel, error) {
		s, err := server.Start(ctx)
		if err != nil {
			return nil, nil, err
		}
		defer s.Stop()
		return decisions.Run(ctx, plan, s)
	}},
	{"cluster", "Decisions on a cluster", func(
		ctx context.Context, plan measure.Plan,
	) ([]report.Table, []report.Panel, error) {
		c, err := server.StartCluster(ctx, 3)
		if err != nil {
			return nil, nil, err
		}
		defer c.Stop()
		tables, err := decisions.RunCluster(ctx, plan, c)
		return tables, nil, err
	}},
	{"lone", "Callers that share nothing", func(ctx context.Context, plan measure.Plan) ([]report.Table, []report.Panel, error) {
		tables, err := lone.Run(ctx, plan)
		return tables, nil, err
	}},
	{"locks", "Semaphores and locks", onServer(locks.Run)},
	{"filters", "Bloom filters", onServer(filters.Run)},
	{"plans", "Plans", onServer(plans.Run)},
	{"middleware", "Middleware", func(ctx context.Context, plan measure.Plan) ([]report.Table, []report.Panel, error) {
		tables, err := middleware.Run(ctx, plan)
		return tables, nil, err
	}},
	{"llm", "Language models", onServer(llm.Run)},
	{"outbound", "Clients", onServer(outbound.Run)},
	{"weight", "Weight", func(ctx context.Context, _ measure.Plan) ([]report.Table, []report.Panel, error) {
		tables, err := weight.Run(ctx)
		return tables, nil, err
	}},
	{"memory", "In the process", func(ctx context.Context, plan measure.Plan) ([]report.Table, []report.Panel, error) {
		tables, err := memory.Run(ctx, plan)
		return tables, nil, err
	}},
}

func names() []string {
	all := make([]string, len(parts))
	for i, p := range parts {
		all[i] = p.name
	}
	return all
}
