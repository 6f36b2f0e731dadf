package core

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/enum"
)

// Period is the length of a Calendar's periods.
type Period uint8

// The periods of a Calendar. The zero value is none of them.
const (
	PeriodMinute = Period(algorithm.Minute)
	PeriodHour   = Period(algorithm.Hour)
	PeriodDay    = Period(algorithm.Day)
	PeriodWeek   = Period(algorithm.Week) // from Monday
	PeriodMonth  = Period(algorithm.Month)
	PeriodYear   = Period(algorithm.Year)
)

var periods = [...]string{"none", "minute", "hour", "day", "week", "month", "year"}

// String returns the period in one lower-case word.
func (p Period) String() string { return enum.Name(periods[:], int(p)) }

// Calendar admits Limit units in each period of a calendar, such as a day from midnight to midnight
// in a time zone. A day on which clocks change has 23 or 25 hours, or whatever it has in that zone.
// Redis's clock decides which period it is.
//
// A changed limit holds at once, and the count of the period stays. Another Every, zone or Anchor
// has a count of its own.
type Calendar struct {
	Limit int64          // units in each period, at most 10^15
	Every Period         // the length of a period; required
	In    *time.Location // the time zone, such as time.UTC, by its name and offsets; required
	// Anchor, if not zero, is when a period starts, such as the first day of a subscription. The
	// other periods start at the same time of the day, day of the week, day of the month or day of
	// the year. If a month lacks that day, its last day takes the place: a period from 31 January
	// ends on 28 or 29 February, and the next one on 31 March. Hours and minutes are counted from
	// the Anchor. Anchors of equal periods are equal, such as the 15th of two months. For a
	// midnight that clocks skip, time.Date may return 23:00 of the day before: use an equal anchor.
	Anchor time.Time
}

func (c Calendar) compile() (compiled, error) {
	every := algorithm.Unit(c.Every)
	calendar, err := algorithm.NewCalendar(c.Limit, every, c.In, c.Anchor, time.Now())
	return compiled{calendar: calendar}, err
}

// Span is the half-open interval [From, Until). Both are zero for a quota without periods.
type Span struct{ From, Until time.Time }

// String returns both ends in UTC as ISO 8601 has them, such as 2026-03-17T08:00:00Z/2026-04-17T07:00:00Z.
func (s Span) String() string {
	return s.From.UTC().Format(time.RFC3339) + "/" + s.Until.UTC().Format(time.RFC3339)
}

// Period returns the period at a time, such as the month whose end ends a raise. The error is that
// of a Calendar that is not valid.
func (c Calendar) Period(at time.Time) (Span, error) {
	compiled, err := compile(c)
	if err != nil {
		return Span{}, fmt.Errorf("core: %w", err)
	}
	_, from, until := algorithm.PeriodOf(compiled.calendar.Current(), at.UnixMicro())
	return Span{time.UnixMicro(from).In(c.In), time.UnixMicro(until).In(c.In)}, nil
}
