package core

import (
	"time"

	"github.com/headgate/headgate/internal/algorithm"
)

// Unit is the length of a Calendar's periods.
type Unit uint8

// The units of a Calendar. The zero value is none of them.
const (
	Minute = Unit(algorithm.Minute)
	Hour   = Unit(algorithm.Hour)
	Day    = Unit(algorithm.Day)
	Week   = Unit(algorithm.Week) // from Monday
	Month  = Unit(algorithm.Month)
	Year   = Unit(algorithm.Year)
)

// String returns the unit in one lower-case word.
func (u Unit) String() string {
	return nameOf([]string{"none", "minute", "hour", "day", "week", "month", "year"}, int(u))
}

// Calendar allows Limit units in each period of a calendar: a day from midnight to midnight, a month from the first to
// the first, in a time zone. A day on which clocks change has 23 or 25 hours, or what it has in that zone. Redis's clock
// decides which period it is; the clocks of the processes do not matter.
//
// A changed limit holds at once: what was counted in the period stays. Another Unit, zone or Anchor starts anew, with a
// count of its own.
type Calendar struct {
	Limit int64          // units in each period, at most 10^15
	Every Unit           // the length of a period
	In    *time.Location // the zone, such as time.UTC; see time.LoadLocation
	// Anchor, if not zero, is when a period starts. Others start at the same time of the day, day of the week, day of
	// the month or day of the year, such as a customer's billing periods. A day that a month does not have is its last:
	// a period from the 31st of January ends on the 28th of February, or the 29th, and the next on the 31st of
	// March. Hours and minutes are counted from the Anchor.
	Anchor time.Time
}

func (c Calendar) compile() (compiled, error) {
	calendar, err := algorithm.NewCalendar(c.Limit, algorithm.Unit(c.Every), c.In, c.Anchor, time.Now())
	if err != nil {
		return compiled{}, prefixed("Calendar.", err)
	}
	return compiled{calendar: calendar}, nil
}
