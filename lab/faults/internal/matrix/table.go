package matrix

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// write writes the outcomes as a table of Markdown. Where a row has three values, they are those of
// Local, Open and Closed; where it has one, all are equal.
func write(out io.Writer, outcomes []outcome) {
	fmt.Fprintln(out, "| fault | topology | decisions | longest, ms | counted twice |"+
		" over the limit (at most) | recovery, s | slots, holds lost |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|")
	last := ""
	for _, o := range outcomes {
		name := o.fault.name
		if name == last {
			name = ""
		}
		last = o.fault.name
		var over [len(modes)]string
		for i := range modes {
			over[i] = fmt.Sprintf("%d (%d)", o.over[i], o.fault.promise.over(i))
		}
		fmt.Fprintf(out, "| %s | %v | %s | %s | %s | %s | %s | %d, %d |\n", name, o.topology,
			three(o.decisions, func(n int) string { return fmt.Sprint(n) }),
			three(o.longest, func(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }),
			three(o.doubles, func(n int) string { return fmt.Sprint(n) }),
			three(over, func(s string) string { return s }),
			three(o.recovery, func(d time.Duration) string { return fmt.Sprintf("%.1f", max(0, d.Seconds())) }),
			o.slots, o.holds)
	}
}

func three[T any](values [len(modes)]T, format func(T) string) string {
	var texts [len(modes)]string
	for i, v := range values {
		texts[i] = format(v)
	}
	if texts[0] == texts[1] && texts[1] == texts[2] {
		return texts[0]
	}
	return strings.Join(texts[:], " · ")
}
