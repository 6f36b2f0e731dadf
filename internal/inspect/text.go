package inspect

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/plans"
)

// Describe says in words what a limit admits, such as "100 per 1 min, at most 20 at once".
func Describe(a core.Algorithm) string {
	switch a := a.(type) {
	case core.TokenBucket:
		return describeBucket(a)
	case core.LeakyBucket:
		return fmt.Sprintf("%s per %s, %s queue", Number(a.Rate), Span(a.Per), Number(a.Capacity))
	case core.FixedWindow:
		if a.FromFirst {
			return fmt.Sprintf("%s in %s from the first", Number(a.Limit), Span(a.Window))
		}
		return fmt.Sprintf("%s in each %s", Number(a.Limit), Span(a.Window))
	case core.SlidingWindow:
		return fmt.Sprintf("%s in any %s", Number(a.Limit), Span(a.Window))
	case core.SlidingLog:
		var all []string
		for _, w := range a.Windows {
			all = append(all, fmt.Sprintf("%s in any %s", Number(w.Limit), Span(w.Width)))
		}
		return strings.Join(all, ", ")
	case core.Calendar:
		return fmt.Sprintf("%s in each %s%s, %v", Number(a.Limit), a.Every, anchored(a), a.In)
	case plans.Subscribed:
		return fmt.Sprintf("%s in each %s of the subscription, %v", Number(a.Limit), a.Every, a.In)
	case core.Block:
		return fmt.Sprintf("%s strikes in %s block for %s", Number(a.Strikes), Span(a.Within), Span(a.For))
	case core.Unlimited:
		return "unlimited"
	case core.DenyAll:
		return "denies everything"
	}
	return fmt.Sprintf("%T", a)
}

// anchored says where the periods of a Calendar begin if it has an Anchor, such as " from day 31, 09:00".
func anchored(c core.Calendar) string {
	if c.Anchor.IsZero() {
		return ""
	}
	at, layout := c.Anchor.In(c.In), " from 15:04:05"
	switch c.Every {
	case core.PeriodMinute, core.PeriodHour:
		layout = " from :04:05"
	case core.PeriodWeek:
		layout = " from Monday 15:04:05"
	case core.PeriodMonth:
		layout = " from day 2, 15:04:05"
	case core.PeriodYear:
		layout = " from 2 January 15:04:05"
	}
	return strings.TrimSuffix(at.Format(layout), ":00")
}

func describeBucket(a core.TokenBucket) string {
	switch {
	case a.Rate == 0 && a.Per > 0:
		return fmt.Sprintf("%s, full again after %s without a charge", Number(a.Burst), Span(a.Per))
	case a.Rate == 0:
		return fmt.Sprintf("%s, never refilled", Number(a.Burst))
	case a.Burst == a.Rate:
		return fmt.Sprintf("%s per %s", Number(a.Rate), Span(a.Per))
	}
	return fmt.Sprintf("%s per %s, at most %s at once", Number(a.Rate), Span(a.Per), Number(a.Burst))
}

// LimitText returns a limit as a file of plans has it, such as {burst: 20, per: "1m0s", rate: 100}. It
// is empty for a limit that cannot stand in one.
func LimitText(a core.Algorithm) string {
	text, err := plans.Override{Limits: map[string]core.Algorithm{"limit": a}}.MarshalText()
	if err != nil {
		return ""
	}
	var o struct {
		Limits struct{ Limit json.RawMessage }
	}
	_ = json.Unmarshal(text, &o) // it is JSON
	return strings.Trim(bare.Replace(string(o.Limits.Limit)), `"`)
}

// bare writes JSON as people write YAML.
var bare = strings.NewReplacer(`{"`, "{", `,"`, ", ", `":`, ": ")

// Span returns a duration for people, exactly, such as 1 min 30 s.
func Span(d time.Duration) string {
	if d%time.Second != 0 || d == 0 {
		return d.String()
	}
	var all []string
	for _, u := range units {
		if n := d / u.size; n > 0 {
			all = append(all, fmt.Sprintf("%d %s", n, u.name))
			d -= n * u.size
		}
	}
	return strings.Join(all, " ")
}

var units = [...]struct {
	name string
	size time.Duration
}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}}

// Wait returns a duration for people, rounded up to the second, in two units at most, such as
// 2 h 5 min. It is "ever" for core.Never.
func Wait(d time.Duration) string {
	switch {
	case d == core.Never:
		return "ever"
	case d <= 0:
		return "0 s"
	}
	d = (d + time.Second - 1).Truncate(time.Second)
	first := 0
	for d < units[first].size {
		first++
	}
	if first+2 < len(units) { // rounded up to the second unit
		unit := units[first+1].size
		if d = (d + unit - 1).Truncate(unit); first > 0 && d == units[first-1].size {
			first--
		}
	}
	return Span(d)
}

// Clock returns a time in UTC, with its day if that is not near.
func Clock(t time.Time) string {
	layout := "15:04:05 UTC"
	if d := time.Until(t); d > 20*time.Hour || d < -20*time.Hour {
		layout = "2 Jan 2006, " + layout
	}
	return t.UTC().Format(layout)
}

// Number returns an integer with a comma between groups of three digits.
func Number(n int64) string {
	sign := ""
	if n < 0 {
		sign, n = "-", -n
	}
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}
