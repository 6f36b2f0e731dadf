package core_test

import (
	"cmp"
	"slices"
	"testing"
	"time"
)

// belief is the time during which a process thought that it held a slot: from when it saw the grant
// until it gave it up, was killed, or knew by its own clock that its lease might be over. Times are
// on one clock for all processes.
type belief struct {
	seat     int   // whose it is
	queued   int64 // when he was told that he waits, 0 if he did not
	token    int64
	from, to int64
}

// mostAtOnce is how many beliefs overlap at most.
func mostAtOnce(all []belief) int {
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

func TestMostAtOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		beliefs []belief
		want    int
	}{
		"none":             {nil, 0},
		"one":              {[]belief{{token: 1, from: 0, to: 9}}, 1},
		"after each other": {[]belief{{token: 1, from: 0, to: 5}, {token: 2, from: 5, to: 9}}, 1},
		"overlapping":      {[]belief{{token: 1, from: 0, to: 6}, {token: 2, from: 5, to: 9}}, 2},
		"within":           {[]belief{{token: 1, from: 0, to: 9}, {token: 2, from: 2, to: 3}, {token: 3, from: 4, to: 5}, {token: 4, from: 4, to: 6}}, 3},
		"over before seen": {[]belief{{token: 1, from: 0, to: 9}, {token: 2, from: 6, to: 5}}, 1},
	} {
		if got := mostAtOnce(tt.beliefs); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

// wallclock gives the times of a process by its monotonic clock, which goes on while the process is
// stopped, from where the clock that all processes see stood when it began.
type wallclock struct{ start time.Time }

func (w wallclock) at(t time.Time) int64 { return w.start.UnixNano() + int64(t.Sub(w.start)) }
