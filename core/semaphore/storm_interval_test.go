package semaphore_test

import (
	"cmp"
	"slices"
	"testing"
	"time"
)

// interval is the time during which a process believed that it held a slot. It starts when the
// process saw the grant. It ends when the process released the slot, was killed, or knew by its own
// clock that its lease might have ended. All processes use one clock for these times.
type interval struct {
	worker   int   // index of the process
	queued   int64 // when the process learnt that it was queued, 0 if it was not
	token    int64
	from, to int64
}

// maxOverlap returns how many intervals overlap at most.
func maxOverlap(all []interval) int {
	type change struct {
		at int64
		by int
	}
	var changes []change
	for _, b := range all {
		if b.to > b.from {
			changes = append(changes, change{b.from, 1}, change{b.to, -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	now, most := 0, 0
	for _, c := range changes {
		now += c.by
		most = max(most, now)
	}
	return most
}

func TestMaxOverlap(t *testing.T) {
	for name, tt := range map[string]struct {
		intervals []interval
		want      int
	}{
		"none":                     {nil, 0},
		"one":                      {[]interval{{token: 1, from: 0, to: 9}}, 1},
		"one after the other":      {[]interval{{token: 1, from: 0, to: 5}, {token: 2, from: 5, to: 9}}, 1},
		"overlapping":              {[]interval{{token: 1, from: 0, to: 6}, {token: 2, from: 5, to: 9}}, 2},
		"nested":                   {[]interval{{token: 1, from: 0, to: 9}, {token: 2, from: 2, to: 3}, {token: 3, from: 4, to: 5}, {token: 4, from: 4, to: 6}}, 3},
		"ended before it was seen": {[]interval{{token: 1, from: 0, to: 9}, {token: 2, from: 6, to: 5}}, 1},
	} {
		if got := maxOverlap(tt.intervals); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

// wallclock converts times of a process to a clock that all processes share. It adds the time on
// the monotonic clock, which goes on while the process is stopped, to the wall-clock time of the
// start.
type wallclock struct{ start time.Time }

func (w wallclock) at(t time.Time) int64 { return w.start.UnixNano() + int64(t.Sub(w.start)) }
