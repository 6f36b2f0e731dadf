// Package summary writes the first screen of the report: what a reader takes away from the figures of a run.
package summary

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/lab/bench/internal/report"
)

// cells reads figures of the run from its tables. A figure of a table that was not measured is NaN.
type cells struct {
	tables []report.Table
	err    error // of a figure that a measured table does not have
}

// column is a column of a table, of several with one name the first.
type column struct{ table, name string }

// line is the figure of the line that begins with these words.
func (c *cells) line(of column, words ...string) float64 {
	t, at := c.find(of)
	if t == nil {
		return math.NaN()
	}
	for _, row := range t.Rows {
		if begins(row, words) {
			return c.number(t, row[at])
		}
	}
	c.fail("table %q has no line %q", of.table, words)
	return math.NaN()
}

// best is the best figure of all peers, whose lines are neither this project's nor a floor, and
// whose it is. The words stand before the name in their lines.
func (c *cells) best(of column, better func(a, b float64) bool, words ...string) (value float64, name string) {
	value = math.NaN()
	t, at := c.find(of)
	if t == nil {
		return value, ""
	}
	for _, row := range t.Rows {
		peer := row[len(words)]
		if !begins(row, words) || strings.HasPrefix(peer, "**") || strings.HasPrefix(peer, "floor: ") {
			continue
		}
		// A peer that never got there has a figure of zero.
		if v := c.number(t, row[at]); v > 0 && (math.IsNaN(value) || better(v, value)) {
			value, name = v, peer
		}
	}
	return value, name
}

func least(a, b float64) bool { return a < b }
func most(a, b float64) bool  { return a > b }

func begins(row, words []string) bool {
	for i, w := range words {
		if strings.Trim(row[i], "*") != w {
			return false
		}
	}
	return true
}

func (c *cells) find(of column) (t *report.Table, at int) {
	for i := range c.tables {
		t := &c.tables[i]
		if t.Title != of.table {
			continue
		}
		if at := slices.Index(t.Columns, of.name); at >= 0 {
			return t, at
		}
		c.fail("table %q has no column %q", of.table, of.name)
	}
	return nil, 0
}

func (c *cells) number(t *report.Table, text string) float64 {
	if text == "-" { // as of what never succeeded
		return math.NaN()
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
	if err != nil {
		c.fail("table %q: %q is no figure", t.Title, text)
	}
	return v
}

func (c *cells) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("summarize the run: "+format, args...)
	}
}
