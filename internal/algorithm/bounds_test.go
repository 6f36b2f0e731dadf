package algorithm

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func must[L any](limit L, err error) L {
	if err != nil {
		panic(err)
	}
	return limit
}

func us(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// admitted is a number of units and the time of their charge.
type admitted struct{ at, units int64 }

// densest returns the largest number of units in any window of width microseconds. A charge exactly
// that old is outside.
func densest(all []admitted, width int64) (most int64) {
	sum, first := int64(0), 0
	for _, a := range all {
		for sum += a.units; all[first].at <= a.at-width; first++ {
			sum -= all[first].units
		}
		most = max(most, sum)
	}
	return most
}

// try charges n units if they fit.
func try(l Limit, s State, now, n int64) (receipt int64, ok bool) {
	l = At(l, now)
	l.Find(s, now)
	c := l.Cost(n)
	if !s.Fits(c, Terms{}) {
		return 0, false
	}
	return s.Commit(c, Terms{Receipts: true}), true
}

func clone(s State) State {
	switch s := s.(type) {
	case *bucket:
		c := *s
		return &c
	case *window:
		c := *s
		return &c
	case *counters:
		c := *s
		return &c
	case *entries:
		c := *s
		c.all, c.live = slices.Clone(s.all), slices.Clone(s.live)
		return &c
	}
	panic("no such state")
}

// relative returns the state relative to now: equal texts have equal futures.
func relative(s State, now int64) string {
	if now >= s.Expires() {
		return ""
	}
	switch s := s.(type) {
	case *window:
		return fmt.Sprint(s.kept.start-now, s.kept.count, s.kept.debt)
	case *counters:
		return fmt.Sprint(s.kept.start-now, s.kept.count, s.kept.before)
	case *entries:
		var b []int64
		for i, e := range s.all {
			if i >= s.kept {
				b = append(b, e.time-now, between(e.before, s.before(i+1)))
			}
		}
		return fmt.Sprint(b)
	}
	panic("no such state")
}

type spentAt struct{ units, receipt int64 }

// worst returns the largest number of units that any adversary gets into a window of width
// microseconds. It tries all: at each microsecond any number of units is charged and, if giving is
// true, refunded then or later. It ends because the situations differ in finitely many ways other
// than the time.
func worst(l Limit, width int64, giving bool) (most int64) {
	type situation struct {
		now   int64
		state State
		past  []spentAt // one for each microsecond up to now, the latest first
	}
	remembered := width
	if giving {
		remembered = 2 * width
	}
	seen := map[string]bool{}
	var todo []situation
	visit := func(now int64, state State, past []spentAt) {
		if now >= state.Expires() {
			state = l.NewState()
		}
		key, sum := fmt.Append(nil, now%width, relative(state, now)), int64(0)
		for i, p := range past {
			if int64(i) < width {
				sum += p.units
			}
			key = fmt.Append(key, " ", p.units)
			if p.units > 0 && giving {
				key = fmt.Append(key, now-p.receipt)
			}
		}
		if most = max(most, sum); !seen[string(key)] {
			seen[string(key)] = true
			todo = append(todo, situation{now, state, past})
		}
	}
	visit(start-start%width, l.NewState(), make([]spentAt, remembered))
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		visit(s.now+1, s.state, append(make([]spentAt, 1), s.past[:remembered-1]...))
		state := clone(s.state)
		if receipt, ok := try(l, state, s.now, 1); ok {
			more := slices.Clone(s.past)
			more[0] = spentAt{more[0].units + 1, receipt}
			visit(s.now, state, more)
		}
		for i, p := range s.past {
			if giving && p.units > 0 {
				state, less := clone(s.state), slices.Clone(s.past)
				l.Find(state, s.now)
				state.Give(l.Cost(1), p.receipt)
				less[i].units--
				visit(s.now, state, less)
			}
		}
	}
	return most
}

// No adversary exceeds the bound of a window, and one reaches it.
func TestWorstAdversaryReachesTheBound(t *testing.T) {
	once := func(limit, _ int64) int64 { return limit }
	twice := func(limit, _ int64) int64 { return 2 * limit }
	tests := []struct {
		name          string
		limit         func(limit, width int64) Limit
		plain, giving func(limit, width int64) int64
	}{
		{"aligned", func(limit, width int64) Limit { return must(NewFixedWindow(limit, us(width), false)) }, twice, twice},
		// A window starts with a charge, which has left when the next starts, unless it was refunded.
		{"from first", func(limit, width int64) Limit { return must(NewFixedWindow(limit, us(width), true)) },
			func(limit, _ int64) int64 { return 2*limit - 1 }, twice},
		// The same is true of the window before, and two microseconds of it are still covered when the
		// last comes.
		{"two counters", func(limit, width int64) Limit { return must(NewSlidingWindow(limit, us(width))) },
			func(limit, width int64) int64 { return 2*limit - 1 - (2*(limit-1)+width-1)/width },
			func(limit, width int64) int64 { return 2*limit - (2*limit+width-1)/width }},
		{"buckets", func(limit, width int64) Limit {
			return must(NewBuckets(limit, us(width), []int{1, 1, 2, 1, 4, 5, 3, 7}[width]))
		}, once, once},
		{"log", func(limit, width int64) Limit { return must(NewSlidingLog([]Window{{limit, us(width)}})) }, once, once},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for limit := int64(1); limit <= 3; limit++ {
				for width := int64(2); width <= 7; width++ {
					if got, want := worst(tt.limit(limit, width), width, false), tt.plain(limit, width); got != want {
						t.Errorf("%d in %d microseconds of a limit of %d, not %d", got, width, limit, want)
					}
					if limit > 2 && width > 2 || limit > 1 && width > 3 && tt.name != "two counters" || width > 4 {
						continue
					}
					if got, want := worst(tt.limit(limit, width), width, true), tt.giving(limit, width); got != want {
						t.Errorf("with refunds %d in %d microseconds of a limit of %d, not %d", got, width, limit, want)
					}
				}
			}
		})
	}
}

// A bucket admits in any time the burst and the refill, if all tokens are spent at once and then
// each token as it refills.
func TestBucketReachesTheBound(t *testing.T) {
	for _, b := range []*TokenBucket{
		mustBucket(t, 1, time.Microsecond, 10), mustBucket(t, 300_000, time.Second, 3), mustBucket(t, 7, 3*time.Microsecond, 20),
		mustBucket(t, 3, 7*time.Microsecond, 2), must(NewLeakyBucket(2, 5*time.Microsecond, 4)),
	} {
		s, sum := b.NewState(), int64(0)
		for length := range int64(300) {
			for ok := true; ok; sum++ {
				_, ok = try(b, s, start+length, 1)
			}
			sum--
			refilled := length * b.denominator / b.numerator
			if sum != b.burst+refilled {
				t.Fatalf("%+v admits %d in %d microseconds, not %d", b, sum, length, b.burst+refilled)
			}
		}
	}
}

// anyLimit draws a limit, its bound for any window of a width, and that width: 0 for a calendar,
// whose bound is that of its periods, and for a bucket, whose bound is of any window.
func anyLimit(t *rapid.T) (l Limit, width, bound int64) {
	limit := rapid.OneOf(rapid.Int64Range(1, 6), rapid.Int64Range(1, 1000)).Draw(t, "limit")
	width = rapid.OneOf(rapid.Int64Range(1, 40), rapid.Int64Range(1, 10_000_000)).Draw(t, "width")
	switch rapid.IntRange(0, 9).Draw(t, "algorithm") {
	case 0:
		return must(NewFixedWindow(limit, us(width), false)), width, 2 * limit
	case 1:
		return must(NewFixedWindow(limit, us(width), true)), width, 2 * limit
	case 2:
		return must(NewSlidingWindow(limit, us(width))), width, 2*limit - 1
	case 3:
		limit, width = 1_000_000_000*limit, width+1_000_000
		return must(NewSlidingWindow(limit, us(width))), width, 2*limit - 1
	case 4:
		n := rapid.Int64Range(1, 20).Draw(t, "buckets")
		return must(NewBuckets(limit, us(n*width), int(n))), n * width, limit
	case 5:
		return must(NewSlidingLog([]Window{{limit, us(width)}})), width, limit
	case 6:
		// The other windows only ever take away.
		windows := []Window{{limit + 3, us(2 * width)}, {limit, us(width)}, {limit + 1, us(3*width + 1)}}
		return must(NewSlidingLog(windows)), width, limit
	case 7:
		every := rapid.SampledFrom([]Unit{Minute, Hour, Day, Week, Month, Year}).Draw(t, "unit")
		return must(NewCalendar(limit, every, anyZone(t), time.Time{}, time.UnixMicro(start))).Current(), 0, limit
	case 8:
		return must(NewGrant(limit, us(width+1000))), width + 1000, limit
	}
	return anyBucket(t), 0, 0
}

// someTime draws a time to pass: none, moments, a part of a limit's width, the width or twice that.
func someTime(t *rapid.T, l Limit) int64 {
	width := max(10, min(l.Window(), 366*24*time.Hour).Microseconds())
	return rapid.OneOf(rapid.Int64Range(0, 2), rapid.Int64Range(0, width), rapid.SampledFrom([]int64{width - 1, width, 2*width - 1, 2 * width})).Draw(t, "microseconds")
}

// someUnits draws a number of units: few, many, or all that remain.
func someUnits(t *rapid.T, l Limit, s State, now int64) int64 {
	l = At(l, now)
	l.Find(s, now)
	left := l.Read(s.Reply(Cost{}, nil), Cost{}, 0).Remaining
	return rapid.OneOf(rapid.Just(max(1, left)), rapid.Int64Range(1, max(1, min(3, left))), rapid.Int64Range(1, l.Capacity())).Draw(t, "n")
}

// keeps fails the test if l admitted more than its bound in any window or period.
func keeps(t *rapid.T, l Limit, width, bound int64, all []admitted) {
	switch _, until := Period(l); {
	case until > 0:
		sums := map[int64]int64{}
		for _, a := range all {
			from, _ := Period(At(l, a.at))
			if sums[from] += a.units; sums[from] > bound {
				t.Fatalf("%d of %d in a period: %+v", sums[from], bound, all)
			}
		}
	default:
		if got := densest(all, width); got > bound {
			t.Fatalf("%d of %d in %d microseconds: %+v", got, bound, width, all)
		}
	}
}
