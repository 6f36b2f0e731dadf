package algorithm

import (
	"encoding/binary"
	"os"
	"strings"
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

var units = map[string]Unit{"Minute": Minute, "Hour": Hour, "Day": Day, "Week": Week, "Month": Month, "Year": Year}

func TestPeriodsOfZones(t *testing.T) {
	for line := range strings.Lines(string(must(os.ReadFile("testdata/periods.txt")))) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		var anchor time.Time
		if f[2] != "-" {
			anchor = utc(f[2])
		}
		c := must(NewCalendar(1, units[f[1]], zone(f[0]), anchor, utc(f[3])))
		checkPeriod(t, c, f[0]+" from "+f[2], f[3], f[4], f[5])
	}
}

func checkPeriod(t *testing.T, c *Calendar, name, at, start, finish string) {
	t.Helper()
	from, until := Period(c.Current())
	if from != utc(start).UnixMicro() || until != utc(finish).UnixMicro() {
		t.Errorf("%s, unit %d, at %s: from %v until %v", name, c.every, at, time.UnixMicro(from).UTC(), time.UnixMicro(until).UTC())
	}
	_, after := Period(c.at(until))
	if next := from + c.at(from).next([]int64{0, until - from, 0, until}, 2); next != after {
		t.Errorf("%s, unit %d, at %s: the next ends at %v, not %v", name, c.every, at, next, after)
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
		days := int(wall.Sub(c.origin()).Round(time.Hour) / (24 * time.Hour))
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
		p := At(c.Current(), now).(*FixedWindow)
		if from, until := Period(p); from > now || now >= until || c.Current() != p || c.at(now) != p {
			t.Errorf("from %d until %d at %d", from, until, now)
		}
		if from, until := Period(p.Share(2)); p.Share(2).Capacity() != 2 || from != p.start || until != p.finish {
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
			from, until := Period(c.Current())
			if at := now.UnixMicro(); from > at || at >= until || until-from != time.Hour.Microseconds() {
				t.Fatalf("%s: the hour of %v is from %v to %v", z.name, now.In(z.in), time.UnixMicro(from).In(z.in), time.UnixMicro(until).In(z.in))
			}
		}
	}
}

// Zones count together if their names tell that they have one offset, and the names of keys stay.
func TestZonesOfOneName(t *testing.T) {
	tag := func(in *time.Location) string { return must(NewCalendar(5, Month, in, time.Time{}, time.Now())).tag }
	for name, want := range map[string]string{
		"UTC": "ca2M", "Europe/Berlin": "ca2My3porzzjlkve", "CET": "ca2M12zbc9bagyoc7", "EST": "ca2M1iby9jxzaxiuz",
		"GMT": "ca2M2hrxs8jpskd0z", "EET": "ca2M26ccuc6jbu2d5", "HST": "ca2M8a4ox4ex0t66", "MET": "ca2M20bgdt9t87yr5",
		"MST": "ca2Meozi7tg4u9sj", "WET": "ca2M1adfkckns92yj", "GMT0": "ca2M2okyu64udc3f9", "Zulu": "ca2M3qx2ksgg5pfbz",
	} {
		if got := tag(must(time.LoadLocation(name))); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for _, pair := range [][2]*time.Location{
		{time.FixedZone("", 3600), time.FixedZone("", -3600)}, {time.FixedZone("CST", -6*3600), time.FixedZone("CST", 8*3600)},
		{time.FixedZone("CET", 3600), must(time.LoadLocation("CET"))}, {time.FixedZone("UTC", 3600), time.FixedZone("UTC", 0)},
	} {
		if a, b := tag(pair[0]), tag(pair[1]); a == b {
			t.Errorf("both zones called %q have the count %s", pair[0], a)
		}
	}
	for name, same := range map[string]bool{"GMT": true, "EST": true, "GMT0": false, "Zulu": false} { // with or without tzdata
		in := must(time.LoadLocation(name))
		if a, b := tag(time.FixedZone(name, offsets(in)[0])), tag(in); (a == b) != same {
			t.Errorf("a fixed zone called %s has the count %s, and the zone of that name %s", name, a, b)
		}
	}
	if a, b := tag(time.FixedZone("here", 3600)), tag(time.FixedZone("here", 3600)); a != b {
		t.Errorf("one zone has the counts %s and %s", a, b)
	}
}
