package main

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/inspect"
)

// simulated is the answer of simulate in JSON.
type simulated struct {
	Plan     string          `json:"plan"`
	Lines    int64           `json:"lines"`
	Faulty   int64           `json:"faulty_lines"`
	Requests int64           `json:"requests"`
	Refused  int64           `json:"refused"`
	First    stamp           `json:"first"`
	Last     stamp           `json:"last"`
	Late     int64           `json:"out_of_order"`
	Latest   seconds         `json:"out_of_order_by_at_most_seconds"`
	Limits   []limitJSON     `json:"limits"`
	Skipped  []string        `json:"skipped_limits"`
	Keys     []simulatedJSON `json:"keys"`
	Others   int64           `json:"denials_of_other_keys"`
}

type limitJSON struct {
	Policy string `json:"policy"`
	Limit  string `json:"limit"`
	Denied int64  `json:"denied"`
	First  stamp  `json:"first_denial"`
	Exempt int64  `json:"requests_without_key"`
}

type simulatedJSON struct {
	Policy string `json:"policy"`
	Key    string `json:"key"`
	Denied int64  `json:"denied"`
	First  stamp  `json:"first_denial"`
	Last   stamp  `json:"last_denial"`
}

func (s *simulation) show(o *outcome) error {
	if s.json {
		return writeJSON(s.out, s.answer(o))
	}
	out := s.out
	fmt.Fprintf(out, "%s requests from %s to %s UTC under plan %s\n",
		inspect.Number(o.Requests), clock(o.First), clock(o.Last), o.Plan)
	fmt.Fprintf(
		out, "%s would have been refused (%s)\n\n", inspect.Number(o.Refused), percent(o.Refused, o.Requests),
	)
	t := newTable(out, "LIMIT", "ALGORITHM", "DENIED", "FIRST DENIAL", "WITHOUT KEY")
	for _, l := range o.Limits {
		t.add(l.Policy, inspect.Describe(l.Algorithm), inspect.Number(l.Denied), clock(l.First), inspect.Number(l.Exempt))
	}
	_ = t.Flush()
	if shown := o.Keys[:min(s.top, len(o.Keys))]; len(shown) > 0 {
		fmt.Fprintln(out)
		t = newTable(out, "KEY", "LIMIT", "DENIED", "FIRST DENIAL", "LAST DENIAL")
		for _, k := range shown {
			t.add(formatKey(k.Key), k.Policy, inspect.Number(k.Denied), clock(k.First), clock(k.Last))
		}
		_ = t.Flush()
		if more := len(o.Keys) - len(shown); more > 0 {
			fmt.Fprintf(out, "and %s more keys\n", inspect.Number(int64(more)))
		}
	}
	s.note(o)
	return nil
}

// note says what the figures leave out.
func (s *simulation) note(o *outcome) {
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if o.Late > 0 {
		note("%s lines were out of order, by at most %v: each was decided at the time of the latest "+
			"before it", inspect.Number(o.Late), o.Latest)
	}
	if o.Faults.Lines > 0 {
		note("%s lines are no requests and were skipped, such as line %d of %s", inspect.Number(o.Faults.Lines),
			o.Faults.First, o.Where)
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

func (s *simulation) answer(o *outcome) *simulated {
	a := &simulated{
		Plan: o.Plan, Lines: o.Lines, Faulty: o.Faults.Lines, Requests: o.Requests, Refused: o.Refused,
		First: stamp(o.First), Last: stamp(o.Last), Late: o.Late, Latest: seconds(o.Latest),
		Limits: []limitJSON{}, Skipped: append([]string{}, o.Skipped...), Keys: []simulatedJSON{},
		Others: o.OtherKeys,
	}
	for _, l := range o.Limits {
		a.Limits = append(
			a.Limits,
			limitJSON{l.Policy, inspect.Describe(l.Algorithm), l.Denied, stamp(l.First), l.Exempt},
		)
	}
	for _, k := range o.Keys[:min(s.top, len(o.Keys))] {
		a.Keys = append(a.Keys, simulatedJSON{
			k.Policy, formatKey(k.Key), k.Denied, stamp(k.First), stamp(k.Last),
		})
	}
	return a
}
