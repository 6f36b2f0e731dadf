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

var units = [...]string{"none", "minute", "hour", "day", "week", "month", "year"}

// String returns the unit in one lower-case word.
func (u Unit) String() string { return nameOf(units[:], int(u)) }

// Calendar admits Limit units in each period of a calendar, such as a day from midnight to midnight
// in a time zone. A day on which clocks change has 23 or 25 hours, or whatever it has in that zone.
// Redis's clock decides which period it is.
//
// A changed limit holds at once, and the count of the period stays. Another unit, zone or Anchor
// has a count of its own.
type Calendar struct {
	Limit int64          // units in each period, at most 10^15
	Every Unit           // the length of a period; required
	In    *time.Location // the time zone, such as time.UTC; required
	// Anchor, if not zero, is when a period starts, such as the first day of a subscription. The
	// other periods start at the same time of the day, day of the week, day of the month or day of
	// the year. If a month lacks that day, its last day takes the place: a period from 31 January
	// ends on 28 or 29 February, and the next one on 31 March. Hours and minutes are counted from
	// the Anchor.
	Anchor time.Time
}

func (c Calendar) compile() (compiled, error) {
	calendar, err := algorithm.NewCalendar(
		c.Limit,
		algorithm.Unit(c.Every),
		c.In,
		c.Anchor,
		time.Now(),
	)
	if err != nil {
		return compiled{}, prefixed("Calendar.", err)
	}
	return compiled{calendar: calendar}, nil
}
