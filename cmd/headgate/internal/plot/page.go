// Package plot draws the report of a replay as one page of HTML, which needs no other file.
package plot

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/replay"
	"github.com/headgate/headgate/core"
)

//go:embed page.html
var source string

var pageTemplate = template.Must(template.New("page").Parse(source))

// Page is a plot of a report.
type Page struct {
	Plan string
	Logs []string
	*replay.Report
	Top       int // how many keys are shown
	FormatKey func(core.Key) string
}

// Sizes of the drawing, in units of the view box.
const (
	width  = 1000
	height = 240
)

// view is what the template shows.
type view struct {
	Plan, Logs, First, Last string
	Requests, Refused       int64
	Share                   string
	Column                  time.Duration
	Width, Height           int
	Most                    int64
	Bars                    []bar
	Ticks                   []tick
	Rows                    []row
	More                    int
	Limits                  []limit
}

// bar is one column: the requests that pass, and above them those that are refused.
type bar struct {
	X, Width                        float64
	PassY, PassHeight, RefuseY, Red float64
	Title                           string
}

type tick struct {
	X     float64
	Label string
}

// row is one key, with a cell for each column in which it was denied.
type row struct {
	Key, Policy, First, Last string
	Denied                   int64
	Cells                    []cell
}

type cell struct {
	X, Width, Opacity float64
	Title             string
}

type limit struct {
	Name, First string
	Denied      int64
}

const layout = "2006-01-02 15:04:05"

// Write writes the page.
func (p *Page) Write(w io.Writer) error {
	v := view{
		Plan: p.Plan, Logs: strings.Join(p.Logs, ", "), First: p.First.Format(layout),
		Last: p.Last.Format(layout), Requests: p.Requests, Refused: p.Report.Refused,
		Column: p.Timeline.Width(), Width: width, Height: height,
	}
	if p.Requests > 0 {
		v.Share = fmt.Sprintf("%.2f %%", 100*float64(p.Report.Refused)/float64(p.Requests))
	}
	v.bars(&p.Timeline)
	v.ticks(&p.Timeline)
	for _, l := range p.Limits {
		first := "never"
		if !l.First.IsZero() {
			first = l.First.Format(layout)
		}
		v.Limits = append(v.Limits, limit{l.Policy, first, l.Denied})
	}
	shown := p.Keys[:min(p.Top, len(p.Keys))]
	for _, k := range shown {
		v.Rows = append(v.Rows, p.row(k))
	}
	v.More = len(p.Keys) - len(shown)
	return pageTemplate.Execute(w, &v)
}

// bars draws the columns.
func (v *view) bars(t *replay.Timeline) {
	columns := t.Columns()
	for _, c := range columns {
		v.Most = max(v.Most, c.Requests)
	}
	for i, c := range columns {
		if c.Requests == 0 {
			continue
		}
		all := height * float64(c.Requests) / float64(v.Most)
		red := height * float64(c.Refused) / float64(v.Most)
		step := float64(width) / float64(len(columns))
		v.Bars = append(v.Bars, bar{
			X: step * float64(i), Width: step, PassY: height - all + red, PassHeight: all - red,
			RefuseY: height - all, Red: red,
			Title: fmt.Sprintf("%s: %d requests, %d refused", at(t, i), c.Requests, c.Refused),
		})
	}
}

// at returns when a column begins.
func at(t *replay.Timeline, column int) string {
	return t.Start().Add(time.Duration(column) * t.Width()).Format(layout)
}

// ticks labels the axis of time.
func (v *view) ticks(t *replay.Timeline) {
	const most = 6
	n := len(t.Columns())
	if n == 0 {
		return
	}
	format := "15:04:05"
	if time.Duration(n)*t.Width() > 24*time.Hour {
		format = "01-02 15:04"
	}
	for i := range most {
		share := float64(i) / most
		when := t.Start().Add(time.Duration(share * float64(time.Duration(n)*t.Width())))
		v.Ticks = append(v.Ticks, tick{share * width, when.Format(format)})
	}
}

// row draws when a key was denied.
func (p *Page) row(k *replay.Key) row {
	r := row{
		Key: p.FormatKey(k.Key), Policy: k.Policy, Denied: k.Denied,
		First: k.First.Format(layout), Last: k.Last.Format(layout),
	}
	denials, most := k.Denials(), int64(1)
	for _, n := range denials {
		most = max(most, n)
	}
	step := float64(width) / float64(len(p.Timeline.Columns()))
	for column, n := range denials {
		if n == 0 {
			continue
		}
		r.Cells = append(r.Cells, cell{
			X: step * float64(column), Width: max(step, 1.5), Opacity: 0.3 + 0.7*float64(n)/float64(most),
			Title: fmt.Sprintf("%s, %s: %d denials by %s", at(&p.Timeline, column), r.Key, n, k.Policy),
		})
	}
	return r
}
