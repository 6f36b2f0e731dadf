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

// made returns whether a constructor made a limit, and its error.
func made[L any](l *L, err error) (bool, error) { return l != nil, err }

func TestLimitsNameEveryFault(t *testing.T) {
	distinct := func(n int) (all []Window) {
		for i := range n {
			all = append(all, Window{1, us(int64(i + 1))})
		}
		return all
	}
	tokens := func(rate int64, per time.Duration, burst int64, faults ...string) func(*testing.T) {
		ok, err := made(NewTokenBucket(rate, per, burst))
		if rate == 0 {
			ok, err = made(NewGrant(burst, per))
		}
		return func(t *testing.T) { names(t, ok, err, faults) }
	}
	leaky := func(rate int64, per time.Duration, capacity int64, faults ...string) func(*testing.T) {
		ok, err := made(NewLeakyBucket(rate, per, capacity))
		return func(t *testing.T) { names(t, ok, err, faults) }
	}
	buckets := func(limit int64, window time.Duration, n int, faults ...string) func(*testing.T) {
		ok, err := made(NewBuckets(limit, window, n))
		return func(t *testing.T) { names(t, ok, err, faults) }
	}
	log := func(windows []Window, faults ...string) func(*testing.T) {
		ok, err := made(NewSlidingLog(windows))
		return func(t *testing.T) { names(t, ok, err, faults) }
	}
	year := func(n int) time.Time { return time.Date(n, 6, 1, 0, 0, 0, 0, time.UTC) }
	calendar := func(limit int64, every Unit, in *time.Location, anchor time.Time, faults ...string) func(*testing.T) {
		ok, err := made(NewCalendar(limit, every, in, anchor, time.UnixMicro(start)))
		return func(t *testing.T) { names(t, ok, err, faults) }
	}
	for name, check := range map[string]func(*testing.T){
		"token bucket/good":              tokens(1, time.Second, 1),
		"token bucket/frozen":            tokens(0, 0, 1),
		"token bucket/fastest":           tokens(1<<42, 1, MaxUnits),
		"token bucket/slowest":           tokens(1, Longest-time.Microsecond, 1),
		"token bucket/negative":          tokens(-1, -1, -1, "Rate is -1", "Per is -1ns", "Burst is -1"),
		"token bucket/zero":              tokens(0, 0, 0, "Burst is 0"),
		"token bucket/all at once":       tokens(1<<42+1, 0, 0, "Rate is 4398046511105", "Per is 0", "Burst is 0"),
		"token bucket/lifetime":          tokens(0, time.Millisecond, 1),
		"token bucket/long lifetime":     tokens(0, Longest, 1, "Per is"),
		"token bucket/short lifetime":    tokens(0, time.Millisecond-time.Microsecond, 1, "Per is 999µs: with Rate 0"),
		"token bucket/part of lifetime":  tokens(0, time.Second+1, 1, "Per is 1.000000001s"),
		"token bucket/burst too large":   tokens(1<<42, 1, math.MaxInt64, "Burst is 9223372036854775807"),
		"token bucket/a century":         tokens(1, Longest, 1, "Burst takes more than 100 years"),
		"token bucket/centuries":         tokens(1, 30*24*time.Hour, 1_000_000, "Burst takes more than 100 years"),
		"token bucket/beyond 64 bits":    tokens(1, math.MaxInt64, MaxUnits, "Burst takes more than 100 years"),
		"token bucket/frozen, too large": tokens(0, 0, MaxCount+1, "Burst is 1000000000000001"),

		"leaky bucket/good":        leaky(1, time.Second, 1),
		"leaky bucket/all at once": leaky(0, -1, 0, "Rate is 0", "Per is -1ns", "Capacity is 0"),
		"leaky bucket/negative":    leaky(-1, -1, -1, "Rate is -1", "Per is -1ns", "Capacity is -1"),
		"leaky bucket/a century":   leaky(1, Longest, 1, "Capacity takes more than 100 years"),

		"buckets/one":                      buckets(1, time.Second, 1),
		"buckets/most":                     buckets(1, time.Second, 1000),
		"buckets/of a microsecond":         buckets(1, 7*time.Microsecond, 7),
		"buckets/all at once":              buckets(0, 0, 0, "Limit is 0", "Window is 0s", "Buckets is 0"),
		"buckets/negative":                 buckets(-5, -1, -1, "Limit is -5", "Window is -1ns", "Buckets is -1"),
		"buckets/too many":                 buckets(1, time.Hour, 1001, "Buckets is 1001"),
		"buckets/far too many":             buckets(1, time.Hour, math.MaxInt32, "Buckets is 2147483647"),
		"buckets/does not divide":          buckets(1, time.Second, 3, "Buckets is 3"),
		"buckets/divides nanoseconds only": buckets(1, time.Microsecond, 2, "Buckets is 2"),
		"buckets/more than microseconds":   buckets(1, 7*time.Microsecond, 8, "Buckets is 8"),
		"buckets/no whole microseconds":    buckets(1, 1500, 1, "Window is 1.5µs", "Buckets is 1"),

		"log/one":      log(distinct(1)),
		"log/most":     log(distinct(8)),
		"log/none":     log(nil, "Windows are 0"),
		"log/too many": log(distinct(9), "Windows are 9"),
		"log/all at once": log(
			[]Window{{0, 0}, {5, time.Second}, {-1, 1500}, {10_001, time.Second}, {1, quarter + time.Second}},
			"Windows[0].Limit is 0", "Windows[0].Width is 0s", "Windows[2].Limit is -1", "Windows[2].Width is 1.5µs",
			"Windows[3].Limit is 10001", "Windows[3].Width is 1s, as Windows[1].Width is", "Windows[4].Width is "),
		"log/overflow": log([]Window{{math.MaxInt64, math.MaxInt64}},
			"Windows[0].Limit is 9223372036854775807", "Windows[0].Width is "),

		"calendar/no anchor":    calendar(1, Minute, time.UTC, time.Time{}),
		"calendar/first anchor": calendar(1, Year, time.UTC, year(1900)),
		"calendar/last anchor":  calendar(1, Day, time.UTC, year(2200)),
		"calendar/all at once": calendar(0, 0, nil, year(1899),
			"Every is 0", "In is nil", "Anchor is in the year 1899", "Limit is 0"),
		"calendar/above all": calendar(math.MaxInt64, Year+1, nil, year(2201),
			"Every is 7", "In is nil", "Anchor is in the year 2201", "Limit is 9"),
		"calendar/no such unit":  calendar(1, 255, time.UTC, time.Time{}, "Every is 255"),
		"calendar/negative":      calendar(-1, Day, time.UTC, time.Time{}, "Limit is -1"),
		"calendar/no zone":       calendar(1, Day, nil, year(2025), "In is nil"),
		"calendar/before Christ": calendar(1, Day, time.UTC, year(-5), "Anchor is in the year -5"),
	} {
		t.Run(name, check)
	}
}
