// Package report writes what was measured as Markdown and as a plot.
package report

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// Table is one table of the report.
type Table struct {
	Title string
	// Note says how the numbers came about, and what is to be known to read them.
	Note    string
	Columns []string
	Rows    [][]string
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Write writes the table as Markdown, with numbers to the right.
func (t *Table) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n", t.Title)
	if t.Note != "" {
		fmt.Fprintf(&b, "%s\n\n", t.Note)
	}
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.Columns)
	rule := make([]string, len(t.Columns))
	for i := range rule {
		rule[i] = "---"
		if t.numbers(i) {
			rule[i] = "--:"
		}
	}
	line(rule)
	for _, row := range t.Rows {
		line(row)
	}
	b.WriteByte('\n')
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the table %q: %w", t.Title, err)
	}
	return nil
}

// numbers says whether a column holds nothing but numbers.
func (t *Table) numbers(column int) bool {
	for _, row := range t.Rows {
		if strings.ContainsFunc(row[column], func(r rune) bool { return !strings.ContainsRune("0123456789.,-+% ", r) }) {
			return false
		}
	}
	return true
}

// Number writes a number with about three digits.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "-"
	case a >= 9.995 || a == 0:
		return whole(v, a)
	case a >= 0.0995:
		return fmt.Sprintf("%.2f", v)
	case a >= 0.00095:
		return fmt.Sprintf("%.3f", v)
	default:
		return fmt.Sprintf("%.4f", v)
	}
}

func whole(v, size float64) string {
	if size >= 99.5 || size == 0 {
		return grouped(int64(math.Round(v)))
	}
	return fmt.Sprintf("%.1f", v)
}

// Count writes a whole number.
func Count(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	return grouped(int64(math.Round(v)))
}

func grouped(n int64) string {
	text := fmt.Sprint(n)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// Percent writes a part of one, to a tenth.
func Percent(v float64) string {
	if v == 0 || math.IsNaN(v) {
		return "0"
	}
	return fmt.Sprintf("%.1f%%", 100*v)
}
