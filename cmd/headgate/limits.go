package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/inspect"
)

// limitView is how a key stands under a limit.
type limitView struct {
	Policy    string  `json:"policy"`
	Key       string  `json:"key"`
	Text      string  `json:"text"` // what the limit admits
	Limit     int64   `json:"limit"`
	Used      int64   `json:"used"`
	Remaining int64   `json:"remaining"`
	Raised    int64   `json:"raised"`
	Held      int64   `json:"held"`
	Blocked   bool    `json:"blocked"`
	Next      seconds `json:"next_after_seconds"`
	Reset     seconds `json:"reset_after_seconds"`
	known     bool
}

func limitOf(l *inspect.Limit) limitView {
	r := &l.Result
	return limitView{
		Policy: l.Policy.Name(), Key: inspect.FormatKey(l.Key), Text: inspect.Describe(l.Algorithm),
		Limit: r.Limit, Used: r.Used, Remaining: r.Remaining,
		Raised: r.Raised, Held: r.Held, Blocked: l.Blocks() && !r.Allowed,
		Next: seconds(r.NextAfter), Reset: seconds(r.ResetAfter), known: r.Known,
	}
}

// notes say what the other columns do not.
func (v *limitView) notes() string {
	var all []string
	if v.Blocked {
		all = append(all, "blocked")
	}
	if v.Held > 0 {
		all = append(all, inspect.Number(v.Held)+" held")
	}
	if v.Raised > 0 {
		all = append(all, "raised by "+inspect.Number(v.Raised))
	}
	return strings.Join(all, ", ")
}

// printLimits writes a table of limits behind an empty line, if there are any.
func printLimits(out io.Writer, all []limitView) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(out)
	t := newTable(out, "LIMIT", "KEY", "ADMITS", "USED", "REMAINING", "ALL BACK IN", "NOTES")
	for _, l := range all {
		used, remaining := "-", "-"
		if l.known {
			used = fmt.Sprintf("%s of %s", inspect.Number(l.Used), inspect.Number(l.Limit))
			remaining = inspect.Number(l.Remaining)
		}
		t.add(l.Policy, l.Key, l.Text, used, remaining, wait(time.Duration(l.Reset)), l.notes())
	}
	t.end()
}

// joined returns metadata in one line.
func joined(meta map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(meta)) {
		all = append(all, name+"="+meta[name])
	}
	return strings.Join(all, " ")
}
