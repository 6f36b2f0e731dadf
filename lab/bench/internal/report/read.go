package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Read returns the tables of a page, without their notes.
func Read(page io.Reader) ([]Table, error) {
	var all []Table
	lines := bufio.NewScanner(page)
	for lines.Scan() {
		line := lines.Text()
		if title, ok := strings.CutPrefix(line, "### "); ok {
			all = append(all, Table{Title: title})
			continue
		}
		inner, ok := strings.CutPrefix(line, "| ")
		if !ok || len(all) == 0 || strings.HasPrefix(inner, "---") {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(inner, " |"), " | ")
		if t := &all[len(all)-1]; t.Columns == nil {
			t.Columns = cells
		} else {
			t.Rows = append(t.Rows, cells)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read a page: %w", err)
	}
	return all, nil
}
