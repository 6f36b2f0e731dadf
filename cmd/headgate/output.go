package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/redisstore/trips"
)

// writeJSON writes a value as indented JSON.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// table writes rows under a head, in columns, when it ends.
type table struct {
	out     io.Writer
	aligned *bytes.Buffer
	rows    *tabwriter.Writer
}

func newTable(out io.Writer, head ...string) table {
	aligned := new(bytes.Buffer)
	t := table{out, aligned, tabwriter.NewWriter(aligned, 0, 8, 2, ' ', 0)}
	t.row(head)
	return t
}

func (t table) row(cells []string) {
	for i, c := range cells {
		cells[i] = printable(c)
	}
	fmt.Fprintln(t.rows, strings.Join(cells, "\t"))
}

// end writes the table. The lines have no spaces at their ends.
func (t table) end() {
	_ = t.rows.Flush() // a Buffer does not fail
	for line := range strings.Lines(t.aligned.String()) {
		fmt.Fprintln(t.out, strings.TrimRight(line, " \n"))
	}
}

// add adds a row of values.
func (t table) add(cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = fmt.Sprint(c)
	}
	t.row(texts)
}

// printable replaces what a terminal would obey: keys and metadata come from clients.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || 0x80 <= r && r < 0xa0 {
			return '\ufffd'
		}
		return r
	}, text)
}

// words returns an error as a person reads it.
func words(err error) string {
	if code := codeOf(err); code == exitOutage || code == exitMisconfigured {
		known := inspect.Explain(err)
		if text := trips.Explain(err); known == err && !strings.Contains(err.Error(), text) {
			known = fmt.Errorf("%s: %w", text, err)
		}
		err = known
	}
	return printableLines(err.Error())
}

func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = printable(l)
	}
	return strings.Join(lines, "\n")
}

// seconds is a duration in JSON: null if it never ends.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) {
	if time.Duration(s) == core.Never {
		return []byte("null"), nil
	}
	return json.Marshal(time.Duration(s).Seconds())
}

// stamp is a time in JSON, in UTC with its fraction; null if it is zero.
type stamp time.Time

func (s stamp) MarshalJSON() ([]byte, error) {
	if time.Time(s).IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(time.Time(s).UTC().Format("2006-01-02T15:04:05.999999Z"))
}

// clock returns a time for a table.
func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// wait returns a duration for a table.
func wait(d time.Duration) string {
	if d == core.Never {
		return "never"
	}
	return inspect.Wait(d)
}
