package report_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/lab/bench/internal/report"
)

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
