package report_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/lab/bench/internal/report"
)

func TestMiddle(t *testing.T) {
	turn := func(note string, cells ...string) []report.Table {
		t := report.Table{Title: "Locks", Note: note, Columns: []string{"", "p50", "p99"}}
		t.Add(cells...)
		return []report.Table{t}
	}
	tests := []struct {
		name  string
		turns [][]report.Table
		want  []report.Table
	}{
		{"none", nil, nil},
		{"one", [][]report.Table{turn("n", "a", "1.5", "2")}, turn("n", "a", "1.5", "2")},
		{
			"three, each cell for itself",
			[][]report.Table{turn("n", "v9", "9.5", "1,000"), turn("n", "v9", "10.1", "900"), turn("n", "v9", "0.5", "-20")},
			turn("n", "v9", "9.5", "900"),
		},
		{
			"the lower one of the middle two",
			[][]report.Table{
				turn("n", "a", "4", "1"), turn("n", "a", "3", "1"), turn("n", "a", "2", "1"), turn("n", "a", "1", "1"),
			},
			turn("n", "a", "2", "1"),
		},
		{
			"numbers of a text",
			[][]report.Table{
				turn("PINGs took 30.5 (p50), then 2.", "a", "1 of 2", ""), turn("PINGs took 28 (p50), then 1.", "a", "3 of 2", ""),
				turn("PINGs took 40 (p50), then 9.", "a", "2 of 2", ""),
			},
			turn("PINGs took 30.5 (p50), then 2.", "a", "2 of 2", ""),
		},
		{
			"texts that differ",
			[][]report.Table{turn("n", "a", "-", "1"), turn("n", "a", "7", "2"), turn("n", "a", "8", "3")},
			turn("n", "a", "-", "2"),
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := report.Middle(test.turns)
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, %v; want %v", got, err, test.want)
			}
		})
	}
	if _, err := report.Middle([][]report.Table{turn("n", "a", "1", "2"), nil}); err == nil {
		t.Error("turns of one table and none have a middle")
	}
	if _, err := report.Middle([][]report.Table{turn("n", "a", "1", "2"), turn("n", "a", "1")}); err == nil {
		t.Error("rows of three cells and two have a middle")
	}
}

func TestMiddlePanels(t *testing.T) {
	turn := func(heights ...float64) []report.Panel {
		return []report.Panel{{Lines: []report.Line{{Name: "a", X: []float64{1, 16}, Y: heights}}}}
	}
	got, err := report.MiddlePanels([][]report.Panel{turn(1, 9), turn(3, 7), turn(2, 8)})
	if err != nil || !reflect.DeepEqual(got, turn(2, 8)) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := report.MiddlePanels([][]report.Panel{turn(1, 9), turn(3)}); err == nil {
		t.Error("lines of two points and one have a middle")
	}
}

func TestReadReturnsWhatWasWritten(t *testing.T) {
	written := []report.Table{
		{Title: "A, x the PING rate", Note: "In microseconds.", Columns: []string{"", "@1", "who"}},
		{Title: "B", Columns: []string{"a"}},
	}
	written[0].Add("**TokenBucket**", "1,234", "")
	written[0].Add("floor: INCR", "-", "-")
	written[1].Add("`key`")
	var page strings.Builder
	page.WriteString("# Benchmarks\n\n- **Many keys.** | no table\n\n")
	for i := range written {
		if err := written[i].Write(&page); err != nil {
			t.Fatal(err)
		}
		written[i].Note = ""
	}
	read, err := report.Read(strings.NewReader(page.String()))
	if err != nil || !reflect.DeepEqual(read, written) {
		t.Errorf("%+v, %v", read, err)
	}
}
