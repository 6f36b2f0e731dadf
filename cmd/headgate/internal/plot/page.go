// Package plot draws the report of a replay as one page of HTML, which needs no other file.
package plot

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/replay"
	"github.com/headgate/headgate/core"
)

//go:embed page.html
var source string

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
	*Page
	Width, Height int
	Most          int64 // requests in a column
	Bars          []bar
	Ticks         []tick
	Shown         []*replay.Key
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

const layout = "2006-01-02 15:04:05"

// when returns a time for a person.
func when(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Format(layout)
}

// Write writes the page.
func (p *Page) Write(w io.Writer) error {
	page, err := template.New("page").Funcs(template.FuncMap{"when": when, "key": p.FormatKey}).Parse(source)
	if err != nil {
		return err
	}
	v := view{Page: p, Width: width, Height: height, Shown: p.Keys[:min(p.Top, len(p.Keys))]}
	v.draw(&p.Timeline)
	return page.Execute(w, &v)
}

// draw draws the columns, and labels the axis of time.
func (v *view) draw(t *replay.Timeline) {
	columns := t.Columns()
	for _, c := range columns {
		v.Most = max(v.Most, c.Requests)
	}
	all := time.Duration(len(columns)) * t.Width()
	for i, c := range columns {
		if c.Requests == 0 {
			continue
		}
		from := t.Start().Add(time.Duration(i) * t.Width())
		whole := height * float64(c.Requests) / float64(v.Most)
		red := height * float64(c.Refused) / float64(v.Most)
		step := float64(width) / float64(len(columns))
		v.Bars = append(v.Bars, bar{
			X: step * float64(i), Width: step, PassY: height - whole + red, PassHeight: whole - red,
			RefuseY: height - whole, Red: red,
			Title: fmt.Sprintf("%s: %d requests, %d refused", when(from), c.Requests, c.Refused),
		})
	}
	format := "15:04:05"
	if all > 24*time.Hour {
		format = "01-02 15:04"
	}
	const ticks = 6
	for i := range ticks {
		at := t.Start().Add(all * time.Duration(i) / ticks)
		v.Ticks = append(v.Ticks, tick{width * float64(i) / ticks, at.Format(format)})
	}
}
