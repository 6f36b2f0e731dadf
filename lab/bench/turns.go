package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/headgate/headgate/lab/bench/internal/report"
)

// turns measures parts by turns: all of them once, each just after that of an older revision if there is one, and then
// all again. What the machine does for minutes falls on a turn of both, and medians leave it out.
type turns struct {
	parts    []part
	older    *before // or nil
	rounds   int     // of each turn
	smoke    bool
	progress io.Writer

	now   map[string][]outcome        // of each part
	past  map[string][][]report.Table // of each part that the older revision has
	wrong []error                     // answers of this project
}

// measure measures every part count times.
func (t *turns) measure(ctx context.Context, count int) error {
	t.now, t.past = make(map[string][]outcome), make(map[string][][]report.Table)
	began := time.Now()
	for turn := range count {
		for _, p := range t.parts {
			fmt.Fprintf(t.progress, "%s: measuring %s, turn %d of %d\n",
				time.Since(began).Round(time.Second), p.name, turn+1, count)
			if err := t.part(ctx, p); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(t.progress, "%s: done\n", time.Since(began).Round(time.Second))
	return nil
}

// part measures a part once.
func (t *turns) part(ctx context.Context, p part) error {
	if t.older != nil {
		tables, err := t.older.run(ctx, p.name, t.rounds, t.progress)
		if tables == nil && err != nil {
			return err
		}
		t.wrong = append(t.wrong, err)
		if tables != nil {
			t.past[p.name] = append(t.past[p.name], tables)
		}
	}
	measured, err := measureApart(ctx, p, t.rounds, t.smoke, t.progress)
	if err != nil {
		return err
	}
	if measured.Wrong != "" {
		t.wrong = append(t.wrong, errors.New(measured.Wrong))
	}
	t.now[p.name] = append(t.now[p.name], measured)
	return nil
}

// middle returns the medians of a part's turns, and of those of the older revision.
func (t *turns) middle(p part) (tables []report.Table, panels []report.Panel, past []report.Table, err error) {
	var allTables [][]report.Table
	var allPanels [][]report.Panel
	for _, o := range t.now[p.name] {
		allTables, allPanels = append(allTables, o.Tables), append(allPanels, o.Panels)
	}
	var errs [3]error
	tables, errs[0] = report.Middle(allTables)
	panels, errs[1] = report.MiddlePanels(allPanels)
	past, errs[2] = report.Middle(t.past[p.name])
	if err := errors.Join(errs[:]...); err != nil {
		return nil, nil, nil, fmt.Errorf("find the medians of %s: %w", p.name, err)
	}
	return tables, panels, past, nil
}
