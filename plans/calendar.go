package plans

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/core"
)

// subscriptionAnchor is the anchor of a Subscribed in a file.
const subscriptionAnchor = "subscription"

var periods = map[string]core.Period{
	"minute": core.PeriodMinute, "hour": core.PeriodHour, "day": core.PeriodDay,
	"week": core.PeriodWeek, "month": core.PeriodMonth, "year": core.PeriodYear,
}

func (r *reader) calendar(f limitFields) core.Algorithm {
	c := core.Calendar{Limit: r.fieldInteger(f, "limit", 0)}
	name := r.text(f.path+"calendar", f.all["calendar"])
	if c.Every = periods[name]; c.Every == 0 && name != "" {
		r.fault(f.path+"calendar", "is %.80q: it must be minute, hour, day, week, month or year", name)
	}
	if n, ok := f.all["in"]; ok {
		if name := r.text(f.path+"in", n); name != "" {
			zone, err := loadZone(name)
			if err != nil {
				r.fault(f.path+"in", "is %.80q: there is no such time zone", name)
			}
			c.In = zone
		}
	}
	if n, ok := f.all["anchor"]; ok && c.In != nil {
		text := r.text(f.path+"anchor", n)
		if text == subscriptionAnchor {
			return Subscribed{c}
		}
		anchor, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			var date time.Time
			if date, err = time.Parse(time.DateOnly, text); err == nil {
				anchor = midnight(c.Every, date, c.In)
			}
		}
		if err != nil && text != "" {
			r.fault(f.path+"anchor", "is %.80q: it must be a date such as 2026-01-31, a time such as "+
				"2026-01-31T09:00:00Z, or subscription", text)
		}
		c.Anchor = anchor.In(c.In)
	}
	return c
}

// midnight returns the start of a date, which is in UTC, in another zone. If the clocks there skip it,
// midnight returns an anchor of the same periods, because time.Date has another hour or day for it.
func midnight(every core.Period, date time.Time, in *time.Location) time.Time {
	year, month, day := date.Date()
	at := time.Date(year, month, day, 0, 0, 0, 0, in)
	if every <= core.PeriodHour || at.Format(time.DateTime) == date.Format(time.DateTime) {
		return at // another hour begins the same hours and minutes
	}
	return reduced(every, date, in)
}

// zones are the time zones that were loaded, by name. time.LoadLocation returns another pointer
// each time, and two Calendars are the same limit only if they have the same pointer.
var zones sync.Map

func loadZone(name string) (*time.Location, error) {
	if zone, ok := zones.Load(name); ok {
		return zone.(*time.Location), nil
	}
	if name == "Local" {
		return nil, fmt.Errorf("the zone %s differs between processes", name)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, err
	}
	kept, _ := zones.LoadOrStore(strings.Clone(name), zone)
	return kept.(*time.Location), nil
}

// hasName reports whether a zone is that of its name: one of time.FixedZone may have any name.
func hasName(zone *time.Location) bool {
	same, err := loadZone(zone.String())
	if err != nil || zone.String() == "" {
		return false
	}
	now := time.Now()
	_, offset := now.In(zone).Zone()
	_, want := now.In(same).Zone()
	return offset == want
}

// formOfCalendar returns a calendar without its anchor.
func formOfCalendar(c core.Calendar) (form, error) {
	f := form{"limit": c.Limit, "calendar": c.Every.String(), "in": c.In.String()}
	if !hasName(c.In) {
		return f, fmt.Errorf("in is %s: it must be a time zone that has a name, such as "+
			"time.UTC or one of time.LoadLocation", strconv.Quote(c.In.String()))
	}
	return f, nil
}
