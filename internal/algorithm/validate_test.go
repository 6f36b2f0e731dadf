package algorithm

import (
	"math"
	"strings"
	"testing"
	"time"
)

const quarter = Longest / 4

// names fails the test unless err consists of the faults, each on its own line.
func names(t *testing.T, made bool, err error, faults []string) {
	t.Helper()
	if made != (err == nil) || (err != nil) != (faults != nil) {
		t.Fatalf("made: %t, %v", made, err)
	}
	if err == nil {
		return
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(faults) {
		t.Fatalf("%d faults instead of %d: %v", len(lines), len(faults), err)
	}
	for i, f := range faults {
		if !strings.HasPrefix(lines[i], f) {
			t.Errorf("%q does not start with %q", lines[i], f)
		}
	}
}

func TestNewWindowsNameEveryFault(t *testing.T) {
	// The columns are the largest limits of a fixed window, a sliding window and buckets.
	tests := []struct {
		name   string
		limit  int64
		window time.Duration
		faults []string
	}{
		{"smallest", 1, time.Microsecond, nil},
		{"longest", 1, quarter, nil},
		{"zero", 0, 0, []string{"Limit is 0", "Window is 0s"}},
		{"negative", -1, -time.Second, []string{"Limit is -1", "Window is -1s"}},
		{"least", math.MinInt64, math.MinInt64, []string{"Limit is -9223372036854775808", "Window is -"}},
		{"most", math.MaxInt64, math.MaxInt64, []string{"Limit is 9223372036854775807", "Window is 2562047h"}},
		{"part of a microsecond", 1, 999, []string{"Window is 999ns: it must be whole microseconds"}},
		{"microseconds and a part", 1, time.Second + 1, []string{"Window is 1.000000001s: it must be whole microseconds"}},
		{"too long", 1, quarter + time.Microsecond, []string{"Window is 219150h0m0.000001s"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := NewFixedWindow(tt.limit, tt.window, true)
			names(t, f != nil, err, tt.faults)
			s, err := NewSlidingWindow(tt.limit, tt.window)
			names(t, s != nil, err, tt.faults)
			b, err := NewBuckets(tt.limit, tt.window, 1)
			if tt.window%time.Microsecond != 0 && tt.window > 0 {
				return // a width with two faults is tested below
			}
			names(t, b != nil, err, tt.faults)
		})
	}
}

func TestLargestLimits(t *testing.T) {
	for _, above := range []int64{0, 1} {
		var faults []string
		if above > 0 {
			faults = []string{"Limit is 1000000000000001: it must be at most 1000000000000000"}
		}
		f, err := NewFixedWindow(MaxCount+above, quarter, false)
		names(t, f != nil, err, faults)
		b, err := NewBuckets(MaxCount+above, quarter, 1000)
		names(t, b != nil, err, faults)
		c, err := NewCalendar(MaxCount+above, Year, time.UTC, time.Time{}, time.UnixMicro(start))
		names(t, c != nil, err, faults)
		if above > 0 {
			faults = []string{"Limit is "}
		}
		s, err := NewSlidingWindow(MaxCount/1000+above, quarter)
		names(t, s != nil, err, faults)
		if above > 0 {
			faults = []string{"Windows[0].Limit is 10001: it must be at most 10000"}
		}
		l, err := NewSlidingLog([]Window{{MaxLogLimit + above, quarter}})
		names(t, l != nil, err, faults)
	}
}

// Scripts count with the product of limit and ticks, which bounds the number of ticks.
func TestTicksAreShortest(t *testing.T) {
	for _, limit := range []int64{1, 2, 3, 7, 1000, 1_000_003, 1_000_000_000_000} {
		for _, window := range []time.Duration{time.Microsecond, 7 * time.Microsecond, time.Second, 24 * time.Hour, quarter - time.Microsecond, quarter} {
			w := must(NewSlidingWindow(limit, window))
			most := maxProduct / limit
			if w.ticks < 1 || w.tick < 1 || w.ticks > most || w.ticks*w.tick < w.width || (w.ticks-1)*w.tick >= w.width {
				t.Errorf("%d in %v: %d ticks of %d", limit, window, w.ticks, w.tick)
			}
			if w.tick > 1 && (w.width+w.tick-2)/(w.tick-1) <= most {
				t.Errorf("%d in %v: %d ticks of %d, which could be shorter", limit, window, w.ticks, w.tick)
			}
			if s := w.Share(limit).(*SlidingWindow); s.limit != 1 || s.tick > w.tick {
				t.Errorf("a share of %+v is %+v", w, s)
			}
		}
	}
}

func TestNewBucketsNamesEveryFault(t *testing.T) {
	tests := []struct {
		name    string
		limit   int64
		window  time.Duration
		buckets int
		faults  []string
	}{
		{"one", 1, time.Second, 1, nil},
		{"most", 1, time.Second, 1000, nil},
		{"of a microsecond", 1, 7 * time.Microsecond, 7, nil},
		{"all at once", 0, 0, 0, []string{"Limit is 0", "Window is 0s", "Buckets is 0"}},
		{"negative", -5, -1, -1, []string{"Limit is -5", "Window is -1ns", "Buckets is -1"}},
		{"too many", 1, time.Hour, 1001, []string{"Buckets is 1001"}},
		{"far too many", 1, time.Hour, math.MaxInt32, []string{"Buckets is 2147483647"}},
		{"does not divide", 1, time.Second, 3, []string{"Buckets is 3"}},
		{"divides nanoseconds only", 1, time.Microsecond, 2, []string{"Buckets is 2"}},
		{"more than microseconds", 1, 7 * time.Microsecond, 8, []string{"Buckets is 8"}},
		{"no whole microseconds", 1, 1500, 1, []string{"Window is 1.5µs", "Buckets is 1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := NewBuckets(tt.limit, tt.window, tt.buckets)
			names(t, b != nil, err, tt.faults)
		})
	}
}

func TestNewSlidingLogNamesEveryFault(t *testing.T) {
	distinct := func(n int) (all []Window) {
		for i := range n {
			all = append(all, Window{1, us(int64(i + 1))})
		}
		return all
	}
	tests := []struct {
		name    string
		windows []Window
		faults  []string
	}{
		{"one", distinct(1), nil},
		{"most", distinct(8), nil},
		{"none", nil, []string{"Windows are 0"}},
		{"too many", distinct(9), []string{"Windows are 9"}},
		{"all at once", []Window{{0, 0}, {5, time.Second}, {-1, 1500}, {10_001, time.Second}, {1, quarter + time.Second}},
			[]string{"Windows[0].Limit is 0", "Windows[0].Width is 0s", "Windows[2].Limit is -1", "Windows[2].Width is 1.5µs",
				"Windows[3].Limit is 10001", "Windows[3].Width is 1s, as Windows[1].Width is", "Windows[4].Width is "}},
		{"overflow", []Window{{math.MaxInt64, math.MaxInt64}}, []string{"Windows[0].Limit is 9223372036854775807", "Windows[0].Width is "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, err := NewSlidingLog(tt.windows)
			names(t, l != nil, err, tt.faults)
		})
	}
}

func TestNewCalendarNamesEveryFault(t *testing.T) {
	year := func(n int) time.Time { return time.Date(n, 6, 1, 0, 0, 0, 0, time.UTC) }
	tests := []struct {
		name   string
		limit  int64
		every  Unit
		in     *time.Location
		anchor time.Time
		faults []string
	}{
		{"no anchor", 1, Minute, time.UTC, time.Time{}, nil},
		{"first anchor", 1, Year, time.UTC, year(1900), nil},
		{"last anchor", 1, Day, time.UTC, year(2200), nil},
		{"all at once", 0, 0, nil, year(1899), []string{"Every is 0", "In is nil", "Anchor is in the year 1899", "Limit is 0"}},
		{"above all", math.MaxInt64, Year + 1, nil, year(2201), []string{"Every is 7", "In is nil", "Anchor is in the year 2201", "Limit is 9"}},
		{"no such unit", 1, 255, time.UTC, time.Time{}, []string{"Every is 255"}},
		{"negative", -1, Day, time.UTC, time.Time{}, []string{"Limit is -1"}},
		{"no zone", 1, Day, nil, year(2025), []string{"In is nil"}},
		{"before Christ", 1, Day, time.UTC, year(-5), []string{"Anchor is in the year -5"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := NewCalendar(tt.limit, tt.every, tt.in, tt.anchor, time.UnixMicro(start))
			names(t, c != nil, err, tt.faults)
		})
	}
}

func TestNewLeakyBucketNamesEveryFault(t *testing.T) {
	tests := []struct {
		name     string
		rate     int64
		per      time.Duration
		capacity int64
		faults   []string
	}{
		{"good", 1, time.Second, 1, nil},
		{"all at once", 0, -1, 0, []string{"Rate is 0", "Per is -1ns", "Capacity is 0"}},
		{"negative", -1, -1, -1, []string{"Rate is -1", "Per is -1ns", "Capacity is -1"}},
		{"a century", 1, Longest, 1, []string{"Capacity takes more than 100 years"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := NewLeakyBucket(tt.rate, tt.per, tt.capacity)
			names(t, b != nil, err, tt.faults)
		})
	}
}
