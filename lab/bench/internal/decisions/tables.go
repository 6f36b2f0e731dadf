package decisions

import (
	"fmt"
	"strconv"

	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/report"
)

func (r *runner) oneCaller(results []measure.Result) report.Table {
	t := report.Table{
		Title: "One caller, one key, allowed",
		Note: fmt.Sprintf("Times in microseconds; the PINGs between took %s (p50; in half of the "+
			"slices between %s and %s) and %s "+
			"(p99). Where that half is wide, the machine was busy with other things. Allocations "+
			"are those of the whole process.",
			report.Number(measure.Reference(results, measure.P50)),
			report.Number(measure.ReferenceAt(results, measure.P50, 0.25)),
			report.Number(measure.ReferenceAt(results, measure.P50, 0.75)),
			report.Number(measure.Reference(results, measure.P99))),
		Columns: []string{"", "p50", "p50 / PING", "p99", "p99 / PING", "allocs", "bytes"},
	}
	for _, c := range results {
		t.Add(c.Label(), report.Number(c.Own(measure.P50)), report.Number(c.ToPing(measure.P50)),
			report.Number(c.Own(measure.P99)), report.Number(c.ToPing(measure.P99)),
			report.Number(c.Own(measure.Mallocs)), report.Count(c.Own(measure.Bytes)))
	}
	return t
}

func (r *runner) deniedTable(results [][]measure.Result) report.Table {
	t := report.Table{
		Title: "One key, denied",
		Note: "The limit was spent before. Reads are how often the server read from a socket per " +
			"decision. Faults are failures, " +
			"and calls that were allowed all the same: go-zero's TokenLimit refills a token a second at least.",
		Columns: []string{
			"", "p50, 1 caller", "p50 / PING", "reads", fmt.Sprintf("x PING rate, %d callers", r.plan.Busy()), "reads", "faults",
		},
	}
	for i, c := range results[0] {
		busy := results[1][i]
		t.Add(c.Label(), report.Number(c.Own(measure.P50)), report.Number(c.ToPing(measure.P50)),
			report.Number(c.Own(measure.Reads)), report.Number(busy.ToPing(measure.Rate)),
			report.Number(busy.Own(measure.Reads)), report.Percent(busy.Own(measure.Faults)))
	}
	return t
}

func (r *runner) hotTable(results [][]measure.Result) report.Table {
	t := report.Table{
		Title: "Throughput on one key, allowed, x the PING rate",
		Note: "Decisions a second, over the PINGs a second of as many callers. Faults are " +
			"decisions that failed, which are left " +
			"out of the rate, or denied what has room." + r.rates(results, r.plan.Workers[:]),
		Columns: []string{""},
	}
	for _, workers := range r.plan.Workers {
		t.Columns = append(t.Columns, "@"+strconv.Itoa(workers))
	}
	t.Columns = append(t.Columns, fmt.Sprintf("faults @%d", r.plan.Busy()), fmt.Sprintf("faults @%d", r.plan.Workers[3]))
	for i, c := range results[0] {
		row := []string{c.Label()}
		for _, of := range results {
			row = append(row, report.Number(of[i].ToPing(measure.Rate)))
		}
		t.Add(append(row, report.Percent(results[2][i].Own(measure.Faults)),
			report.Percent(results[3][i].Own(measure.Faults)))...)
	}
	return t
}

func (r *runner) spreadTable(results [][]measure.Result) report.Table {
	busy := r.plan.Busy()
	t := report.Table{
		Title: fmt.Sprintf("Throughput on %s keys, allowed, x the PING rate", report.Count(float64(r.plan.Spread()))),
		Note: fmt.Sprintf("Every key has been called before. Times in microseconds, of %d "+
			"callers; their PINGs took %s (p50) and %s "+
			"(p99).", busy, report.Number(measure.Reference(results[1], measure.P50)),
			report.Number(measure.Reference(results[1], measure.P99))) + r.rates(results, r.plan.Workers[1:]),
		Columns: []string{""},
	}
	for _, workers := range r.plan.Workers[1:] {
		t.Columns = append(t.Columns, "@"+strconv.Itoa(workers))
	}
	at := fmt.Sprintf(" @%d", busy)
	t.Columns = append(t.Columns, "p50"+at, "p99"+at, "p99 / PING"+at, "faults"+at)
	for i, c := range results[0] {
		row := []string{c.Label()}
		for _, of := range results {
			row = append(row, report.Number(of[i].ToPing(measure.Rate)))
		}
		mid := results[1][i]
		t.Add(append(row, report.Number(mid.Own(measure.P50)), report.Number(mid.Own(measure.P99)),
			report.Number(mid.ToPing(measure.P99)), report.Percent(mid.Own(measure.Faults)))...)
	}
	return t
}

func (r *runner) serverTable(hot, spread []measure.Result) report.Table {
	keys := report.Count(float64(r.plan.Spread()))
	t := report.Table{
		Title: fmt.Sprintf("Work of the server, %d callers", r.plan.Busy()),
		Note: fmt.Sprintf("Processor time of redis-server (INFO cpu, user and system), in "+
			"microseconds per decision; over that of a "+
			"PING, which was %s; and that ratio over the one of %s. Reads are how often the "+
			"server read from a socket per decision.",
			report.Number(measure.Reference(spread, measure.CPU)), hot[0].Name),
		Columns: []string{
			"", "CPU, one key", "/ PING", "/ " + hot[0].Name, "reads",
			"CPU, " + keys + " keys", "/ PING", "/ " + hot[0].Name, "reads",
		},
	}
	toFirst := func(of []measure.Result, i int) string {
		return report.Number(of[i].ToPing(measure.CPU) / of[0].ToPing(measure.CPU))
	}
	for i, c := range hot {
		s := spread[i]
		t.Add(c.Label(), report.Number(c.Own(measure.CPU)), report.Number(c.ToPing(measure.CPU)), toFirst(hot, i),
			report.Number(c.Own(measure.Reads)), report.Number(s.Own(measure.CPU)), report.Number(s.ToPing(measure.CPU)),
			toFirst(spread, i), report.Number(s.Own(measure.Reads)))
	}
	return t
}

func (r *runner) keysTable(loads ...[]measure.Result) report.Table {
	t := report.Table{
		Title:   fmt.Sprintf("Throughput by the number of keys, %d callers, x the PING rate", r.plan.Busy()),
		Note:    "The largest number is measured for a few that stand for the others. Every key has been called before.",
		Columns: []string{""},
	}
	for _, keys := range r.plan.Keys {
		t.Columns = append(t.Columns, report.Count(float64(keys)))
	}
	for _, c := range loads[0] {
		row := []string{c.Label()}
		for _, load := range loads {
			cell := ""
			for _, other := range load {
				if other.Name == c.Name {
					cell = report.Number(other.ToPing(measure.Rate))
				}
			}
			row = append(row, cell)
		}
		t.Add(row...)
	}
	return t
}

// rates is a sentence with the PINGs a second of each number of callers.
func (r *runner) rates(results [][]measure.Result, workers []int) string {
	text := " PINGs a second:"
	for i, of := range results {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf(" %s @%d", report.Count(measure.Reference(of, measure.Rate)), workers[i])
	}
	return text + "."
}

// panel is the plot of some contenders' throughput, where skip is how many of the numbers of callers are left out.
func (r *runner) panel(title string, results [][]measure.Result, skip int) report.Panel {
	p := report.Panel{Title: title, X: "concurrent callers", Y: "decisions / PINGs"}
	for i, c := range results[0] {
		if !plotted[c.Name] {
			continue
		}
		line := report.Line{Name: c.Name}
		if c.Kind == measure.Ours {
			line.Name = "Headgate, " + c.Name
		}
		for at, of := range results {
			line.X = append(line.X, float64(r.plan.Workers[at+skip]))
			line.Y = append(line.Y, of[i].ToPing(measure.Rate))
		}
		p.Lines = append(p.Lines, line)
	}
	return p
}

// plotted is every library once, with its bucket if it has one: more lines could not be told apart.
var plotted = map[string]bool{
	"TokenBucket": true, "redis_rate v10 (GCRA)": true, "ulule/limiter v3 (fixed window)": true,
	"throttled v2 (GCRA)":                true,
	"go-zero PeriodLimit (fixed window)": true, "go-zero TokenLimit (token bucket)": true,
}
