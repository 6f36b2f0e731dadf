package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// writeLine writes a value as one line of JSON.
func writeLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// lines writes what was read as lines of words.
func (v *watchView) lines(w io.Writer) error {
	var b bytes.Buffer
	at := time.Time(v.At).UTC().Format(time.RFC3339)
	if v.Error != "" {
		fmt.Fprintf(&b, "%s error %s\n", at, strings.ReplaceAll(v.Error, "\n", " "))
	} else {
		fmt.Fprintf(&b, "%s redis scripts_per_second=%s keys=%d more=%v\n",
			at, rate(v.Scripts), v.Keys, v.Cut)
	}
	for _, l := range v.Limits {
		fmt.Fprintf(&b, "%s limit %s keys=%d used=%s units_per_second=%s without_room=%s blocked=%d\n",
			at, l.title(), l.Keys, whole(l.Used), rate(l.PerSecond), whole(l.Full), l.Blocked)
	}
	for _, s := range v.Slots {
		fmt.Fprintf(&b, "%s semaphore %s key=%s used=%d limit=%d waiting=%d\n",
			at, s.Semaphore, printable(s.Key), s.Used, s.Limit, s.Waiting)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// frame returns the lines of a frame. Of many semaphores those with the most waiters come first.
func (v *watchView) frame(head string, width, height int) []string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s   %s UTC\n", printable(head), clock(time.Time(v.At)))
	if v.Error != "" {
		fmt.Fprintf(&b, "\n%s\n", v.Error)
		return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	}
	more := ""
	if v.Cut {
		more = " (there are more: see --keys)"
	}
	fmt.Fprintf(
		&b, "%s scripts a second, %s keys read%s\n\n", rate(v.Scripts), count(int64(v.Keys)), more,
	)
	t := newTable(
		&b, "LIMIT", "ALGORITHM", "KEYS", "USED", "UNITS A SECOND", "WITHOUT ROOM", "BLOCKED",
	)
	for _, l := range v.Limits {
		t.add(
			l.title(), l.Algorithm, count(int64(l.Keys)), whole(l.Used), rate(l.PerSecond), whole(l.Full),
			l.Blocked,
		)
	}
	_ = t.Flush()
	slots := slices.Clone(v.Slots)
	slices.SortStableFunc(slots, func(a, b watchSlots) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Used, a.Used))
	})
	if len(slots) > 0 {
		fmt.Fprintln(&b)
		t = newTable(&b, "SEMAPHORE", "KEY", "SLOTS", "", "WAITING", "HELD FOR AT MOST")
	}
	for _, s := range slots {
		t.add(
			s.Semaphore, s.Key, fmt.Sprintf("%d of %d", s.Used, s.Limit), gauge(s.Used, s.Limit), s.Waiting,
			span(time.Duration(s.Oldest)),
		)
	}
	_ = t.Flush()
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) > height && height > 1 {
		lines = append(lines[:height-1], fmt.Sprintf("and %d more lines", len(lines)-height+1))
	}
	return lines
}

func (l *watchLimit) title() string {
	if l.Policy == "" {
		return "#" + l.Label
	}
	return l.Policy
}

// gauge draws how much of a limit is used.
func gauge(used, limit int64) string {
	const width = 10
	full := int64(0)
	if limit > 0 {
		full = min(width, (used*width+limit-1)/limit)
	}
	return strings.Repeat("#", int(full)) + strings.Repeat(".", int(width-full))
}

func whole[T int | int64](n *T) string {
	if n == nil {
		return "-"
	}
	return count(int64(*n))
}

func rate(r *float64) string {
	switch {
	case r == nil:
		return "-"
	case *r < 100:
		return fmt.Sprintf("%.1f", *r)
	}
	return count(int64(*r))
}
