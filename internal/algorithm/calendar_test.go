package algorithm

import (
	"encoding/binary"
	"sync"
	"testing"
	"time"
	_ "time/tzdata" // the same zones on every host

	"pgregory.net/rapid"
)

func zone(name string) *time.Location {
	in, err := time.LoadLocation(name)
	if err != nil {
		panic(err)
	}
	return in
}

// Zones of whole, half and quarter hours, of changes by half an hour and by a day, at midnight,
// just after it and twice in a short time, and of the furthest offsets.
var zones = sync.OnceValue(func() (all []*time.Location) {
	for _, name := range []string{
		"UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo", "America/Havana",
		"Asia/Beirut", "Pacific/Apia", "Pacific/Kiritimati", "Pacific/Niue", "Pacific/Kwajalein", "Asia/Kathmandu",
		"America/St_Johns", "Pacific/Chatham", "Africa/Casablanca", "Asia/Gaza", "Africa/Cairo", "Antarctica/Troll",
		"Africa/Monrovia", "America/Asuncion", "Asia/Tehran", "America/Scoresbysund", "America/Caracas", "Asia/Pyongyang",
	} {
		all = append(all, zone(name))
	}
	return all
})

func anyZone(t *rapid.T) *time.Location { return rapid.SampledFrom(zones()).Draw(t, "zone") }

func utc(s string) time.Time {
	for _, layout := range []string{"2006-01-02", "2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02T15:04:05.999999"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t
		}
	}
	panic(s)
}

// Instants and ends are in UTC, computed by hand from the history of the zones.
func TestPeriodsOfZones(t *testing.T) {
	tests := []struct {
		zone              string
		every             Unit
		at, start, finish string
	}{
		// Days of 23, 23.5, 24.5 and 25 hours.
		{"America/New_York", Day, "2025-03-09T12:00", "2025-03-09T05:00", "2025-03-10T04:00"},
		{"America/New_York", Day, "2025-11-02T06:30", "2025-11-02T04:00", "2025-11-03T05:00"},
		{"Europe/Berlin", Day, "2025-03-30T00:59", "2025-03-29T23:00", "2025-03-30T22:00"},
		{"Europe/Berlin", Day, "2025-10-26T22:59:59.999999", "2025-10-25T22:00", "2025-10-26T23:00"},
		{"Australia/Lord_Howe", Day, "2025-04-06T00:00", "2025-04-05T13:00", "2025-04-06T13:30"},
		{"Australia/Lord_Howe", Day, "2025-10-05T00:00", "2025-10-04T13:30", "2025-10-05T13:00"},
		// The hours before and after each change.
		{"America/New_York", Hour, "2025-03-09T06:59:59", "2025-03-09T06:00", "2025-03-09T07:00"},
		{"America/New_York", Hour, "2025-03-09T07:00", "2025-03-09T07:00", "2025-03-09T08:00"},
		{"America/New_York", Hour, "2025-11-02T05:30", "2025-11-02T05:00", "2025-11-02T06:00"},
		{"America/New_York", Hour, "2025-11-02T06:30", "2025-11-02T06:00", "2025-11-02T07:00"},
		{"Europe/Berlin", Hour, "2025-03-30T00:59", "2025-03-30T00:00", "2025-03-30T01:00"},
		{"Europe/Berlin", Hour, "2025-10-26T01:00", "2025-10-26T01:00", "2025-10-26T02:00"},
		{"Australia/Lord_Howe", Hour, "2025-04-05T14:59:59", "2025-04-05T14:00", "2025-04-05T15:00"},
		{"Australia/Lord_Howe", Hour, "2025-04-05T15:00", "2025-04-05T15:00", "2025-04-05T15:30"},
		{"Australia/Lord_Howe", Hour, "2025-04-05T15:30", "2025-04-05T15:30", "2025-04-05T16:30"},
		{"Australia/Lord_Howe", Hour, "2025-10-04T15:29", "2025-10-04T14:30", "2025-10-04T15:30"},
		{"Australia/Lord_Howe", Hour, "2025-10-04T15:30", "2025-10-04T15:30", "2025-10-04T16:00"},
		{"Australia/Lord_Howe", Hour, "2025-10-04T16:00", "2025-10-04T16:00", "2025-10-04T17:00"},
		{"America/St_Johns", Hour, "2005-10-30T02:30:59", "2005-10-30T02:30", "2005-10-30T02:31"},
		{"America/St_Johns", Hour, "2005-10-30T02:31", "2005-10-30T02:31", "2005-10-30T03:30"},
		{"Asia/Kathmandu", Hour, "2025-01-01T00:20", "2025-01-01T00:15", "2025-01-01T01:15"},
		{"America/New_York", Minute, "2025-03-09T06:59:59.999999", "2025-03-09T06:59", "2025-03-09T07:00"},
		{"America/New_York", Minute, "2025-11-02T06:00", "2025-11-02T06:00", "2025-11-02T06:01"},
		{"Europe/Berlin", Minute, "2025-03-30T01:00:30", "2025-03-30T01:00", "2025-03-30T01:01"},
		{"Europe/Berlin", Minute, "2025-10-26T00:59:30", "2025-10-26T00:59", "2025-10-26T01:00"},
		{"Australia/Lord_Howe", Minute, "2025-04-05T15:00:30", "2025-04-05T15:00", "2025-04-05T15:01"},
		{"Australia/Lord_Howe", Minute, "2025-10-04T15:29:30", "2025-10-04T15:29", "2025-10-04T15:30"},
		// 44 minutes and 30 seconds behind.
		{"Africa/Monrovia", Minute, "1971-06-01T00:00:10", "1971-05-31T23:59:30", "1971-06-01T00:00:30"},
		// Midnights that are skipped, that occur twice, or that follow a repeated hour.
		{"America/Sao_Paulo", Day, "2018-11-04T03:00", "2018-11-04T03:00", "2018-11-05T02:00"},
		{"America/Sao_Paulo", Day, "2018-11-04T02:59:59", "2018-11-03T03:00", "2018-11-04T03:00"},
		{"America/Sao_Paulo", Day, "2018-02-18T02:30", "2018-02-17T02:00", "2018-02-18T03:00"},
		{"America/Havana", Day, "2025-03-09T05:00", "2025-03-09T05:00", "2025-03-10T04:00"},
		{"America/Havana", Day, "2025-11-02T05:00", "2025-11-02T04:00", "2025-11-03T05:00"},
		{"Asia/Beirut", Day, "2025-03-29T22:00", "2025-03-29T22:00", "2025-03-30T21:00"},
		{"Asia/Beirut", Day, "2025-10-25T21:30", "2025-10-24T21:00", "2025-10-25T22:00"},
		{"America/Sao_Paulo", Month, "2018-11-04T03:00", "2018-11-01T03:00", "2018-12-01T02:00"},
		// It was the 30th of October for a minute, then the 29th again for 59: a day starts when its
		// midnight is first shown.
		{"America/St_Johns", Day, "2005-10-30T02:31", "2005-10-30T02:30", "2005-10-31T03:30"},
		// Days that a zone skipped when it crossed the date line.
		{"Pacific/Apia", Day, "2011-12-30T09:59:59", "2011-12-29T10:00", "2011-12-30T10:00"},
		{"Pacific/Apia", Day, "2011-12-30T10:00", "2011-12-30T10:00", "2011-12-31T10:00"},
		{"Pacific/Apia", Week, "2011-12-31T00:00", "2011-12-26T10:00", "2012-01-01T10:00"},
		{"Pacific/Apia", Month, "2011-12-31T00:00", "2011-12-01T10:00", "2011-12-31T10:00"},
		{"Pacific/Kwajalein", Day, "1993-08-21T12:00", "1993-08-21T12:00", "1993-08-22T12:00"},
		{"Pacific/Kiritimati", Day, "2025-01-01T09:59", "2024-12-31T10:00", "2025-01-01T10:00"},
		{"Pacific/Kiritimati", Year, "2024-12-31T10:00", "2024-12-31T10:00", "2025-12-31T10:00"},
		{"Pacific/Niue", Day, "2025-01-01T10:59", "2024-12-31T11:00", "2025-01-01T11:00"},
		{"Pacific/Pago_Pago", Month, "2025-03-01T10:59", "2025-02-01T11:00", "2025-03-01T11:00"},
		// Lengths of months and years.
		{"UTC", Month, "2023-02-28T23:59", "2023-02-01", "2023-03-01"},
		{"UTC", Month, "2024-02-29T12:00", "2024-02-01", "2024-03-01"},
		{"UTC", Month, "2000-02-29T12:00", "2000-02-01", "2000-03-01"},
		{"UTC", Month, "2100-02-28T23:59", "2100-02-01", "2100-03-01"},
		{"UTC", Month, "2025-12-31T12:00", "2025-12-01", "2026-01-01"},
		{"UTC", Day, "2000-02-29T12:00", "2000-02-29", "2000-03-01"},
		{"UTC", Day, "2100-02-28T12:00", "2100-02-28", "2100-03-01"},
		{"UTC", Year, "2000-12-31T23:59", "2000-01-01", "2001-01-01"},
		{"Europe/Berlin", Year, "2025-12-31T22:59", "2024-12-31T23:00", "2025-12-31T23:00"},
		// Weeks start on Monday, in 2100 and across the end of a year too.
		{"UTC", Week, "2025-11-21T12:00", "2025-11-17", "2025-11-24"},
		{"UTC", Week, "2025-11-24", "2025-11-24", "2025-12-01"},
		{"UTC", Week, "2025-11-23T23:59:59.999999", "2025-11-17", "2025-11-24"},
		{"UTC", Week, "2025-01-01", "2024-12-30", "2025-01-06"},
		{"UTC", Week, "2100-03-01", "2100-03-01", "2100-03-08"},
		{"America/New_York", Week, "2025-11-03T04:59", "2025-10-27T04:00", "2025-11-03T05:00"},
	}
	for _, tt := range tests {
		c := must(NewCalendar(1, tt.every, zone(tt.zone), time.Time{}, utc(tt.at)))
		checkPeriod(t, c, tt.zone, tt.at, tt.start, tt.finish)
	}
}

func checkPeriod(t *testing.T, c *Calendar, name, at, start, finish string) {
	t.Helper()
	from, until := c.Current().Period()
	if from != utc(start).UnixMicro() || until != utc(finish).UnixMicro() {
		t.Errorf("%s, unit %d, at %s: from %v until %v", name, c.every, at, time.UnixMicro(from).UTC(), time.UnixMicro(until).UTC())
	}
	_, after := c.at(until).Period()
	if next := from + c.at(from).next([]int64{0, until - from, 0, until}, 2); next != after {
		t.Errorf("%s, unit %d, at %s: the next ends at %v, not %v", name, c.every, at, next, after)
	}
}

func TestAnchoredPeriods(t *testing.T) {
	tests := []struct {
		zone                      string
		every                     Unit
		anchor, at, start, finish string
	}{
		{"UTC", Month, "2025-01-31", "2025-02-15", "2025-01-31", "2025-02-28"},
		{"UTC", Month, "2025-01-31", "2025-02-28", "2025-02-28", "2025-03-31"},
		{"UTC", Month, "2025-01-31", "2025-04-29", "2025-03-31", "2025-04-30"},
		{"UTC", Month, "2024-01-31", "2024-02-28", "2024-01-31", "2024-02-29"},
		{"UTC", Month, "2024-01-31", "2024-03-30", "2024-02-29", "2024-03-31"},
		{"UTC", Month, "2025-10-31", "2026-01-15", "2025-12-31", "2026-01-31"},
		{"UTC", Year, "2024-02-29", "2025-02-27", "2024-02-29", "2025-02-28"},
		{"UTC", Year, "2024-02-29", "2028-02-28", "2027-02-28", "2028-02-29"},
		{"UTC", Year, "2024-02-29", "2028-02-29", "2028-02-29", "2029-02-28"},
		{"UTC", Year, "2024-02-29", "2100-02-28", "2100-02-28", "2101-02-28"},
		{"UTC", Year, "1996-02-29", "2000-02-28T12:00", "1999-02-28", "2000-02-29"},
		// An anchor in the future, and anchors long past.
		{"UTC", Month, "2030-05-15T12:00", "2025-05-15T11:59", "2025-04-15T12:00", "2025-05-15T12:00"},
		{"UTC", Month, "2199-12-31", "2025-02-28", "2025-02-28", "2025-03-31"},
		{"UTC", Month, "1900-01-31", "2024-02-29T12:00", "2024-02-29", "2024-03-31"},
		{"UTC", Week, "2199-01-02", "2025-11-21", "2025-11-19", "2025-11-26"},
		{"UTC", Day, "1900-06-01T06:30", "2199-06-01T06:29", "2199-05-31T06:30", "2199-06-01T06:30"},
		// The first of the month in Berlin, given in UTC.
		{"Europe/Berlin", Month, "2025-01-31T23:00", "2025-04-30T22:00", "2025-04-30T22:00", "2025-05-31T22:00"},
		// The time of day stays when the offset changes: two o'clock comes after half past one came
		// again.
		{"Europe/Berlin", Week, "2025-01-01T08:00", "2025-03-27", "2025-03-26T08:00", "2025-04-02T07:00"},
		{"Australia/Lord_Howe", Month, "2025-01-05T15:00", "2025-04-06", "2025-04-05T15:30", "2025-05-05T15:30"},
		// Half past two, which is skipped once, and half past one, which comes twice once.
		{"America/New_York", Day, "2025-01-01T07:30", "2025-03-09T06:59", "2025-03-08T07:30", "2025-03-09T07:00"},
		{"America/New_York", Day, "2025-01-01T07:30", "2025-03-09T07:00", "2025-03-09T07:00", "2025-03-10T06:30"},
		{"America/New_York", Day, "2025-01-01T06:30", "2025-11-02T06:30", "2025-11-02T05:30", "2025-11-03T06:30"},
		{"America/New_York", Month, "2025-01-09T07:30", "2025-03-09T07:10", "2025-03-09T07:00", "2025-04-09T06:30"},
		// Anchored hours and minutes have a constant length.
		{"Australia/Lord_Howe", Hour, "2025-01-01T00:20", "2025-04-05T15:00", "2025-04-05T14:20", "2025-04-05T15:20"},
		{"Australia/Lord_Howe", Hour, "2150-01-01T00:20", "2025-04-05T15:20", "2025-04-05T15:20", "2025-04-05T16:20"},
		{"UTC", Minute, "2025-01-01T00:00:30", "2025-01-02T00:00", "2025-01-01T23:59:30", "2025-01-02T00:00:30"},
		{"UTC", Minute, "2125-01-01T00:00:30", "2025-01-02T00:00:30", "2025-01-02T00:00:30", "2025-01-02T00:01:30"},
	}
	for _, tt := range tests {
		c := must(NewCalendar(1, tt.every, zone(tt.zone), utc(tt.anchor), utc(tt.at)))
		checkPeriod(t, c, tt.zone+" from "+tt.anchor, tt.at, tt.start, tt.finish)
	}
}

// first is the first instant at which a zone's clocks show at least the given date and time, found
// by walking over all the times between two changes of them.
func first(wall time.Time, in *time.Location) time.Time {
	t := wall.Add(-4 * 24 * time.Hour).In(in)
	for {
		_, offset := t.Zone()
		from, until := t.ZoneBounds()
		shows := wall.Add(-time.Duration(offset) * time.Second)
		if until.IsZero() || shows.Before(until) {
			if !from.IsZero() && shows.Before(from) {
				return from
			}
			return shows
		}
		t = until.In(in)
	}
}

func anyTime(t *rapid.T, in *time.Location) time.Time {
	at := time.Unix(rapid.Int64Range(utc("1971-01-01").Unix(), utc("2199-12-31").Unix()).Draw(t, "seconds"), 0).In(in)
	if _, change := at.ZoneBounds(); !change.IsZero() && rapid.Bool().Draw(t, "near a change") {
		at = change.Add(us(rapid.OneOf(rapid.Int64Range(-2, 2), rapid.Int64Range(-100_000_000_000, 100_000_000_000)).Draw(t, "from it")))
	}
	return at
}

func TestPeriodsLeaveNoGap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := anyZone(t)
		every := rapid.SampledFrom([]Unit{Minute, Hour, Day, Week, Month, Year}).Draw(t, "unit")
		var anchor time.Time
		if rapid.Bool().Draw(t, "anchored") {
			anchor = anyTime(t, in)
		}
		now := anyTime(t, in).UnixMicro()
		c := must(NewCalendar(1, every, in, anchor, time.UnixMicro(now)))
		start, finish := c.period(now)
		if start > now || now >= finish {
			t.Fatalf("%d is not from %d until %d", now, start, finish)
		}
		if next, _ := c.period(finish); next != finish {
			t.Fatalf("one ends at %d, the next starts at %d", finish, next)
		}
		if _, last := c.period(start - 1); last != start {
			t.Fatalf("one ends at %d, the next starts at %d", last, start)
		}
		for _, other := range []int64{start, finish - 1, rapid.Int64Range(start, finish-1).Draw(t, "other")} {
			if s, f := c.period(other); s != start || f != finish {
				t.Fatalf("from %d until %d at %d, from %d until %d at %d", start, finish, now, s, f, other)
			}
		}
	})
}

// Days, weeks, months and years start when the zone's clocks first show their first instant.
func TestPeriodsStartWhenFirstShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := anyZone(t)
		at, anchor := anyTime(t, in), anyTime(t, in)
		c := must(NewCalendar(1, Day, in, anchor, at))
		hour, minute, second := anchor.Clock()
		wall := time.Date(at.Year(), at.Month(), at.Day(), hour, minute, second, anchor.Nanosecond(), time.UTC)
		if day := wall.YearDay(); day > 360 || day < 7 {
			t.Skip("ZoneBounds, by which the test finds changes, is a day off around the end of a leap year")
		}
		days := int(midnight(wall).Sub(midnight(c.origin())).Hours() / 24)
		if got, want := c.begin(days), first(wall, in).UnixMicro(); got != want {
			t.Fatalf("%v in %v is %v, not %v", wall, in, time.UnixMicro(got), time.UnixMicro(want))
		}
	})
}

// Calendars of equal periods are one limit, whichever of their periods the anchor is, and others are not.
func TestAnchorsOfEqualPeriodsAreEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := anyZone(t)
		every := rapid.SampledFrom([]Unit{Day, Week, Month, Year}).Draw(t, "unit")
		anchor, at := anyTime(t, in), anyTime(t, in)
		c := must(NewCalendar(1, every, in, anchor, at))
		later := c.Current().start
		if every >= Month && time.UnixMicro(later).In(in).Day() != anchor.Day() || // of a short month
			!sameClock(time.UnixMicro(later).In(in), anchor) { // which the zone skipped
			t.Skip("another day or time of day")
		}
		same := must(NewCalendar(1, every, in, time.UnixMicro(later), at))
		if same.tag != c.tag || same.anchor != c.anchor {
			t.Fatalf("from %v it is %q, and from %v %q", anchor, c.tag, time.UnixMicro(later).In(in), same.tag)
		}
		other := must(NewCalendar(1, every, in, anchor.Add(time.Minute), at))
		if other.Current().start != later && other.tag == c.tag {
			t.Fatalf("from %v and a minute later it is %q", anchor, c.tag)
		}
	})
}

func sameClock(a, b time.Time) bool {
	return a.Format("150405.000000") == b.Format("150405.000000")
}

// At returns the period of the given time, whatever it was given before.
func TestPeriodsFollowTheTime(t *testing.T) {
	c := must(NewCalendar(5, Day, zone("Europe/Berlin"), time.Time{}, utc("2025-03-30")))
	for _, at := range []string{"2025-03-30", "2024-02-29", "2100-01-01", "2025-03-29T22:59:59.999999", "2025-03-29T23:00"} {
		now := utc(at).UnixMicro()
		p := c.Current().At(now).(*Period)
		if from, until := p.Period(); from > now || now >= until || c.Current() != p || c.at(now) != p {
			t.Errorf("from %d until %d at %d", from, until, now)
		}
		if from, until := p.Share(2).(*Period).Period(); p.Share(2).Capacity() != 2 || from != p.start || until != p.finish {
			t.Errorf("a share is from %d until %d at %d", from, until, now)
		}
	}
}

// withRule returns a zone whose data ends in 1980 and whose rule holds from then on, as in Go's own
// zone data.
func withRule(t *testing.T, rule string, offset int32) *time.Location {
	t.Helper()
	header := func(transitions uint32) []byte {
		h := append([]byte("TZif2"), make([]byte, 15)...)
		for _, n := range []uint32{0, 0, 0, transitions, 1, 4} { // of each kind of data
			h = binary.BigEndian.AppendUint32(h, n)
		}
		return h
	}
	kind := append(binary.BigEndian.AppendUint32(nil, uint32(offset)), 0, 0, 'L', 'M', 'T', 0)
	data := append(header(0), kind...)
	data = append(data, header(1)...)
	data = binary.BigEndian.AppendUint64(data, 315_532_800) // 1980
	data = append(append(append(data, 0), kind...), "\n"+rule+"\n"...)
	in, err := time.LoadLocationFromTZData("zone", data)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// On the last day of a leap year, and around the New Year in zones that are ahead or behind, an
// hour is an hour.
func TestHoursAtTheEndOfALeapYear(t *testing.T) {
	for _, z := range []struct {
		name string
		in   *time.Location
	}{
		{"Berlin", withRule(t, "CET-1CEST,M3.5.0,M10.5.0/3", 3600)},
		{"Adelaide", withRule(t, "ACST-9:30ACDT,M10.1.0,M4.1.0/3", 34_200)},
		{"St John's", withRule(t, "NST3:30NDT,M3.2.0,M11.1.0", -12_600)},
		{"Chatham", withRule(t, "<+1245>-12:45<+1345>,M9.5.0/2:45,M4.1.0/3:45", 45_900)},
	} {
		for now := utc("2028-12-29T00:10"); now.Before(utc("2029-01-03T00:00")); now = now.Add(10 * time.Minute) {
			c := must(NewCalendar(5, Hour, z.in, time.Time{}, now))
			from, until := c.Current().Period()
			if at := now.UnixMicro(); from > at || at >= until || until-from != time.Hour.Microseconds() {
				t.Fatalf("%s: the hour of %v is from %v to %v", z.name, now.In(z.in), time.UnixMicro(from).In(z.in), time.UnixMicro(until).In(z.in))
			}
		}
	}
}
