package summary

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/report"
)

var plan = measure.Plan{Slice: time.Second, Workers: [4]int{1, 16, 64, 256}, Keys: [4]int{1, 1000, 100_000, 1_000_000}}

func tables() []report.Table {
	return []report.Table{
		{
			Title:   "Throughput on 100,000 keys, allowed, x the PING rate",
			Columns: []string{"", "@16", "@64", "@256"},
			Rows: [][]string{
				{"**TokenBucket**", "1", "2.00", "3.00"},
				{"a", "1", "0.50", "1.00"},
				{"b", "1", "0.40", "1.50"},
				{"c", "1", "-", "0"},
				{"floor: INCR", "1", "9", "9"},
				{"floor: one EVALSHA for all who wait, a GET and a SET PX each", "1", "4.00", "5.00"},
			},
		},
		{Title: "Decisions in memory", Columns: []string{"", "keys", "ns, 1 caller"}, Rows: [][]string{
			{"**Gate in memory, TokenBucket**", "1", "1,200"},
			{"sync.Map of rate.Limiter", "1", "100"},
		}},
	}
}

func TestWriteTellsWhatWasMeasured(t *testing.T) {
	var b strings.Builder
	older := tables()[:1]
	older[0].Rows[0][2] = "1.94"
	if err := Write(&b, plan, tables(), Before{Revision: "abc of 2026-01-01", Tables: older}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"64 callers get 2.00 decisions in the time of a PING, and 256 callers 3.00: 4.00 and 2.00 times as many",
		"| decisions on 100,000 keys, x the PING rate, 64 callers | 1.94 | 2.00 | 4.00 | 0.50 | a |",
		"| the same, 256 callers | 3.00 | 3.00 | 5.00 | 1.50 | b |",
		"| a decision in memory, one key, one caller, ns | - | 1,200 |  | 100 | sync.Map of rate.Limiter |",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
	var alone strings.Builder
	if err := Write(&alone, plan, tables(), Before{}); err != nil || !strings.Contains(alone.String(), "| the same, 256 callers | 3.00 | 5.00 | 1.50 | b |") {
		t.Errorf("%v:\n%s", err, alone.String())
	}
	for _, line := range []string{"One key", "Locks", "middleware", "Middleware", "NaN"} {
		if strings.Contains(b.String(), line) {
			t.Errorf("%q was not measured:\n%s", line, b.String())
		}
	}
}

func TestWriteFailsWithoutAFigure(t *testing.T) {
	for name, change := range map[string]func(*report.Table){
		"line":   func(t *report.Table) { t.Rows = t.Rows[1:] },
		"column": func(t *report.Table) { t.Columns = []string{"", "@16", "@64", "@128"} },
		"figure": func(t *report.Table) { t.Rows[0][2] = "" },
	} {
		all := tables()
		change(&all[0])
		if err := Write(&strings.Builder{}, plan, all, Before{}); err == nil {
			t.Errorf("a missing %s is no error", name)
		}
	}
	if err := Write(&strings.Builder{}, plan, nil, Before{}); err != nil {
		t.Errorf("nothing measured: %v", err)
	}
	if v := (&cells{}).line(column{"nothing", "p50"}, "TokenBucket"); !math.IsNaN(v) {
		t.Errorf("got %v", v)
	}
}
