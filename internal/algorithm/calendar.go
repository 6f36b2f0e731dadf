package algorithm

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync/atomic"
	"time"
)

// Unit is the length of a calendar's periods.
type Unit uint8

// The units of a calendar.
const (
	Minute Unit = iota + 1
	Hour
	Day
	Week
	Month
	Year
)

// mean returns the mean length of the periods.
func (u Unit) mean() int64 {
	const day = 86_400_000_000
	return [...]int64{Minute: 60_000_000, Hour: 3_600_000_000, Day: day, Week: 7 * day,
		Month: 2_629_746_000_000, Year: 31_556_952_000_000}[u]
}

// Calendar counts units in the periods of a calendar. It caches the period that was asked for last.
// Redis's clock decides which period that is, not the clock of this process.
type Calendar struct {
	limit  int64
	every  Unit
	in     *time.Location
	anchor time.Time // of anchorOf; zero if periods start where the calendar's do
	tag    string

	current atomic.Pointer[FixedWindow]
}

// NewCalendar validates a limit for each period of a calendar in a time zone. Periods begin at the
// anchor and every unit after and before it. If anchor is zero, they begin where the calendar's do.
// now is a first guess of the time. NewCalendar returns every fault at once.
func NewCalendar(limit int64, every Unit, in *time.Location, anchor, now time.Time) (*Calendar, error) {
	if err := errors.Join(
		faultIf(every < Minute || every > Year, "Every", "is %d: it must be "+
			"PeriodMinute, PeriodHour, PeriodDay, PeriodWeek, PeriodMonth or PeriodYear", every),
		faultIf(in == nil, "In", "is nil: it must be a time zone, such as time.UTC"),
		faultIf(!anchor.IsZero() && (anchor.Year() < 1900 || anchor.Year() > 2200), "Anchor",
			"is in the year %d: it must be between 1900 and 2200", anchor.Year()),
		checkLimit("Limit", limit, MaxCount),
	); err != nil {
		return nil, err
	}
	c := &Calendar{limit: limit, every: every, in: in}
	if !anchor.IsZero() {
		c.anchor = anchorOf(every, anchor.In(in))
	}
	// Periods of different units, zones and anchors are unrelated.
	c.tag = "ca2" + string("-mhdwMy"[every])
	if in != time.UTC || !c.anchor.IsZero() {
		h := fnv.New64a()
		fmt.Fprint(h, in, c.anchor.UnixMicro())
		if !IsNamed(in) {
			fmt.Fprint(h, offsets(in))
		}
		c.tag += strconv.FormatUint(h.Sum64(), 36)
	}
	c.at(now.UnixMicro())
	return c, nil
}

// IsNamed reports whether a time zone is the one that has its name in the IANA database. The zones
// of time.FixedZone and time.Parse may have no name, or any other, and that of a host is "Local".
func IsNamed(in *time.Location) bool {
	name := in.String()
	if abbreviation, _ := winter.In(in).Zone(); abbreviation != name && name != "Local" {
		return true // a zone of time.FixedZone has its name as the abbreviation
	}
	known, ok := abbreviations[name]
	return ok && known == offsets(in)
}

// abbreviations are the offsets of the zones that have their name as the abbreviation, as of version 2025b
// of the database. A host may lack its files, and all hosts must agree.
var abbreviations = map[string][2]int{
	"CET": {3600, 7200}, "EET": {7200, 10800}, "MET": {3600, 7200}, "WET": {0, 3600},
	"EST": {-18000, -18000}, "HST": {-36000, -36000}, "MST": {-25200, -25200}, "GMT": {}, "UTC": {},
}

var winter, summer = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2025, 7, 1, 0, 0, 0, 0, time.UTC)

// offsets returns two offsets of a time zone from UTC, in seconds.
func offsets(in *time.Location) [2]int {
	_, one := winter.In(in).Zone()
	_, two := summer.In(in).Zone()
	return [2]int{one, two}
}

// anchorOf reduces an anchor to what its periods depend on, so that anchors of equal periods are equal:
// what its zone's clocks show, as a time in UTC, or for hours and minutes a time in the first one of
// 1970. It is zero if the calendar's own periods start there.
func anchorOf(every Unit, at time.Time) time.Time {
	if every <= Hour {
		length := every.mean()
		return time.UnixMicro((at.UnixMicro()%length + length) % length).UTC()
	}
	const year = 2000 // has a 29 February
	month, day := time.January, 1
	switch every {
	case Week:
		day = 3 + int(at.Weekday()+6)%7 // the 3rd is a Monday
	case Month:
		day = at.Day()
	case Year:
		month, day = at.Month(), at.Day()
	}
	hour, minute, second := at.Clock()
	micros := at.Nanosecond() / 1000 * 1000
	reduced := time.Date(year, month, day, hour, minute, second, micros, time.UTC)
	if every == Week && reduced.Equal(time.Date(year, 1, 3, 0, 0, 0, 0, time.UTC)) ||
		every != Week && reduced.Equal(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)) {
		return time.Time{}
	}
	return reduced
}

// Current returns the limit of the period that was asked for last.
func (c *Calendar) Current() *FixedWindow { return c.current.Load() }

// share returns a calendar with the n-th part of the limit, at least 1.
func (c *Calendar) share(n int64) *Calendar {
	s := &Calendar{limit: max(1, c.limit/n), every: c.every, in: c.in, anchor: c.anchor, tag: c.tag}
	s.at(c.Current().start)
	return s
}

// at returns the period at now and makes it the current one. Calls for the current period return
// the same pointer.
func (c *Calendar) at(now int64) *FixedWindow {
	before := c.current.Load()
	if before != nil && before.start <= now && now < before.finish {
		return before
	}
	p := c.make(now)
	c.current.CompareAndSwap(before, p)
	return p
}

// make returns the period at now.
func (c *Calendar) make(now int64) *FixedWindow {
	start, finish := c.period(now)
	return &FixedWindow{
		traits: windowTraits(c.tag), limit: c.limit, width: finish - start,
		calendar: c, start: start, finish: finish,
	}
}

// Period returns the calendar's period in which a limit holds, the end excluded, in microseconds since
// 1970. It returns 0 and 0 if the limit always holds.
func Period(l Limit) (from, until int64) {
	if f, ok := l.(*FixedWindow); ok {
		return f.start, f.finish
	}
	return 0, 0
}

// At returns the limit that holds at now, which is l unless that is of a calendar.
func At(l Limit, now int64) Limit {
	if f, ok := l.(*FixedWindow); ok && f.calendar != nil {
		return f.calendar.at(now)
	}
	return l
}

// period returns the period at now, in microseconds since 1970.
func (c *Calendar) period(now int64) (start, finish int64) {
	t := time.UnixMicro(now).In(c.in)
	if c.every <= Hour {
		return c.hourOrMinute(t)
	}
	// The first guess is off by few periods. The loops step to the right one.
	k := int((now - c.origin().UnixMicro()) / c.every.mean())
	for c.begin(k) > now {
		k--
	}
	for c.begin(k+1) <= now {
		k++
	}
	return c.begin(k), c.begin(k + 1)
}

// hourOrMinute returns the period at t of a calendar of hours or minutes. Without an anchor,
// periods follow the zone's clocks: a change of the offset ends one and starts another.
func (c *Calendar) hourOrMinute(t time.Time) (start, finish int64) {
	length, now := c.every.mean(), t.UnixMicro()
	if !c.anchor.IsZero() {
		since := (now - c.anchor.UnixMicro()) % length
		if since < 0 {
			since += length
		}
		return now - since, now - since + length
	}
	_, offset := t.Zone()
	wall := now + int64(offset)*1_000_000
	start = now - wall%length
	finish = start + length
	return change(c.in, now, start), change(c.in, now, finish-1) + 1
}

// change returns the last instant on the way between two instants at which the zone's offset is
// still that of the first. All are microseconds since 1970. It assumes at most one change between
// them. [time.Time.ZoneBounds] is a day off around the end of a leap year.
func change(in *time.Location, from, to int64) int64 {
	offset := func(at int64) int {
		_, offset := time.UnixMicro(at).In(in).Zone()
		return offset
	}
	direction, own := int64(1), offset(from)
	if to < from {
		direction = -1
	}
	// sort.Search counts in int, which holds no microseconds of an hour on 32-bit platforms.
	same, other := int64(0), (to-from)*direction+1
	for other-same > 1 {
		if middle := same + (other-same)/2; offset(from+direction*middle) == own {
			same = middle
		} else {
			other = middle
		}
	}
	return from + direction*same
}

// origin returns the anchor, or a day that begins a year, a month and a week.
func (c *Calendar) origin() time.Time {
	if c.anchor.IsZero() {
		return time.Date(1900, time.January, 1, 0, 0, 0, 0, time.UTC) // a Monday
	}
	return c.anchor
}

// begin returns the start of period k, in microseconds since 1970. If the month lacks the day, the
// period starts on the month's last day.
func (c *Calendar) begin(k int) int64 {
	a := c.origin()
	year, month, day := a.Date()
	switch c.every {
	case Day:
		day += k
	case Week:
		day += 7 * k
	case Month:
		year, month, _ = time.Date(year, month+time.Month(k), 1, 0, 0, 0, 0, time.UTC).Date()
		day = min(day, daysIn(year, month))
	case Year:
		year += k
		day = min(day, daysIn(year, month))
	}
	return instant(year, month, day, a, c.in).UnixMicro()
}

func daysIn(year int, month time.Month) int {
	return time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// instant returns when a zone's clocks first show a date and the time of day of clock. If they skip
// it, it returns the instant of the skip.
func instant(year int, month time.Month, day int, clock time.Time, in *time.Location) time.Time {
	hour, minute, second := clock.Clock()
	wall := time.Date(year, month, day, hour, minute, second, clock.Nanosecond(), time.UTC)
	by := func(near time.Duration) (t time.Time, shown bool) {
		_, offset := wall.Add(near).In(in).Zone()
		t = wall.Add(-time.Duration(offset) * time.Second).In(in)
		_, o := t.Zone()
		return t, o == offset
	}
	before, shown := by(-36 * time.Hour)
	if shown {
		return before
	}
	if after, shown := by(36 * time.Hour); shown {
		return after
	}
	return time.UnixMicro(change(in, before.UnixMicro(), before.Add(-36*time.Hour).UnixMicro())).In(in)
}
