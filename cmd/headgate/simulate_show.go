package main

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/inspect"
)

func (s *simulation) print(o *outcome, more int) {
	out := s.out
	fmt.Fprintf(out, "%s requests from %s to %s UTC under plan %s\n",
		inspect.Number(o.Requests), clock(o.First), clock(o.Last), o.Plan)
	fmt.Fprintf(
		out, "%s would have been refused (%.2f %%)\n\n", inspect.Number(o.Refused),
		100*float64(o.Refused)/float64(o.Requests),
	)
	t := newTable(out, "LIMIT", "ALGORITHM", "DENIED", "FIRST DENIAL", "WITHOUT KEY")
	for _, l := range o.Limits {
		t.add(l.Policy, l.Admits, inspect.Number(l.Denied), clock(l.First), inspect.Number(l.Exempt))
	}
	t.end()
	if len(o.Keys) > 0 {
		fmt.Fprintln(out)
		t = newTable(out, "KEY", "LIMIT", "DENIED", "FIRST DENIAL", "LAST DENIAL")
		for _, k := range o.Keys {
			t.add(k.Key, k.Policy, inspect.Number(k.Denied), clock(k.First), clock(k.Last))
		}
		t.end()
		if more > 0 {
			fmt.Fprintf(out, "and %s more keys\n", inspect.Number(int64(more)))
		}
	}
	s.note(o)
}

// note says what the figures leave out.
func (s *simulation) note(o *outcome) {
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if o.Late > 0 {
		note("%s lines were out of order, by at most %v: each was decided at the time of the latest "+
			"before it", inspect.Number(o.Late), o.Latest)
	}
	if o.Faulty > 0 {
		note("%s lines are no requests and were skipped, such as line %d of %s", inspect.Number(o.Faulty),
			o.faults.First, o.where)
	}
	if len(o.Skipped) > 0 {
		note(
			"a log does not tell the model, so these limits were left out: %s",
			strings.Join(o.Skipped, ", "),
		)
	}
	if o.OtherKeys > 0 {
		note("%s denials were of keys that are not listed", inspect.Number(o.OtherKeys))
	}
	for i, n := range notes {
		if i == 0 {
			fmt.Fprintln(s.out)
		}
		fmt.Fprintf(s.out, "note: %s\n", printable(n))
	}
}
