package report

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// errTurns is returned for turns that measured different things.
var errTurns = errors.New("report: tables of different shapes")

// Middle returns the tables of one turn, with the median of all turns in place of each number. Of an even number of
// turns it is the lower one of the middle two.
func Middle(turns [][]Table) ([]Table, error) {
	if len(turns) == 0 {
		return nil, nil
	}
	all := make([]Table, len(turns[0]))
	for i := range all {
		of := make([]Table, len(turns))
		for j, tables := range turns {
			if len(tables) != len(all) {
				return nil, errTurns
			}
			of[j] = tables[i]
		}
		var err error
		if all[i], err = middleTable(of); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func middleTable(turns []Table) (Table, error) {
	t := Table{Title: turns[0].Title, Columns: turns[0].Columns}
	t.Note = middleText(each(turns, func(t Table) string { return t.Note }))
	for _, other := range turns {
		if len(other.Rows) != len(turns[0].Rows) {
			return Table{}, errTurns
		}
	}
	for row := range turns[0].Rows {
		cells := make([]string, len(turns[0].Rows[row]))
		for _, other := range turns {
			if len(other.Rows[row]) != len(cells) {
				return Table{}, errTurns
			}
		}
		for i := range cells {
			cells[i] = middleText(each(turns, func(t Table) string { return t.Rows[row][i] }))
		}
		t.Add(cells...)
	}
	return t, nil
}

// MiddlePanels returns the panels of one turn, with the median of all turns in place of each height.
func MiddlePanels(turns [][]Panel) ([]Panel, error) {
	if len(turns) == 0 {
		return nil, nil
	}
	all := turns[0]
	for _, other := range turns {
		if len(other) != len(all) {
			return nil, errTurns
		}
	}
	for i := range all {
		if err := middleLines(each(turns, func(panels []Panel) []Line { return panels[i].Lines })); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// middleLines sets the heights of the first turn's lines to the medians.
func middleLines(turns [][]Line) error {
	for j, line := range turns[0] {
		for _, other := range turns {
			if len(other) != len(turns[0]) || len(other[j].Y) != len(line.Y) {
				return errTurns
			}
		}
		for k := range line.Y {
			heights := each(turns, func(lines []Line) float64 { return lines[j].Y[k] })
			line.Y[k] = middle(heights, cmp.Compare[float64])
		}
	}
	return nil
}

// middle sorts values and returns the lower median.
func middle[T any](values []T, compare func(a, b T) int) T {
	slices.SortFunc(values, compare)
	return values[(len(values)-1)/2]
}

var number = regexp.MustCompile(`-?[0-9][0-9,]*(\.[0-9]+)?`)

// middleText returns a text with the median of each of its numbers, or the first text if they differ in more than
// numbers.
func middleText(texts []string) string {
	words := number.Split(texts[0], -1)
	found := make([][]string, len(texts))
	for i, text := range texts {
		if !slices.Equal(number.Split(text, -1), words) {
			return texts[0]
		}
		found[i] = number.FindAllString(text, -1)
	}
	var b strings.Builder
	for i, word := range words {
		b.WriteString(word)
		if i == len(words)-1 {
			break
		}
		values := each(found, func(numbers []string) string { return numbers[i] })
		b.WriteString(middle(values, func(a, b string) int { return cmp.Compare(parsed(a), parsed(b)) }))
	}
	return b.String()
}

// parsed returns a number that the regular expression matches.
func parsed(text string) float64 {
	v, _ := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64) // what matches is a number
	return v
}

func each[T, U any](all []T, of func(T) U) []U {
	out := make([]U, len(all))
	for i, one := range all {
		out[i] = of(one)
	}
	return out
}
