package algorithm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// MaxLogLimit is the largest limit of a sliding log. A log grows with its limit.
const MaxLogLimit = 10_000

// MaxWindows is the largest number of windows of a sliding log.
const MaxWindows = 8

// MaxBuckets is the largest number of buckets of a sliding window.
const MaxBuckets = 1000

// SlidingLog counts every window that ends now from the times of charges. The charges of one tick
// share an entry.
type SlidingLog struct {
	traits
	windows []logWindow // longest first
	tick    int64       // microseconds
	most    int64       // largest number of entries
}

type logWindow struct {
	limit, width, keep int64 // an entry counts for keep microseconds from its tick's start
	at                 int   // index in the caller's list
}

// Window is a limit for every window of one width.
type Window struct {
	Limit int64
	Width time.Duration
}

// NewSlidingLog validates limits for windows of different widths. It returns every fault at once.
func NewSlidingLog(windows []Window) (*SlidingLog, error) {
	errs := []error{faultIf(len(windows) == 0 || len(windows) > MaxWindows, "Windows",
		"are %d: there must be 1 to %d", len(windows), MaxWindows)}
	l := &SlidingLog{traits: logTraits("sl1", len(windows)), tick: 1}
	for i, w := range windows {
		field := fmt.Sprintf("Windows[%d].", i)
		errs = append(errs, checkLimit(field+"Limit", w.Limit, MaxLogLimit), checkWindow(field+"Width", w.Width))
		for j, other := range windows[:i] {
			errs = append(errs, faultIf(other.Width == w.Width, field+"Width",
				"is %v, as Windows[%d].Width is", w.Width, j))
		}
		us := w.Width.Microseconds()
		l.windows = append(l.windows, logWindow{w.Limit, us, us, i})
		l.most = max(l.most, 2*w.Limit)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	slices.SortFunc(l.windows, func(a, b logWindow) int { return cmp.Compare(b.width, a.width) })
	return l, nil
}

// NewBuckets validates a limit for every window of the given width, counted in buckets. A charge
// counts until its whole bucket is further back than the width. NewBuckets returns every fault at
// once.
func NewBuckets(limit int64, window time.Duration, buckets int) (*SlidingLog, error) {
	inRange := buckets >= 1 && buckets <= MaxBuckets
	if err := errors.Join(
		checkLimit("Limit", limit, MaxCount), checkWindow("Window", window),
		faultIf(!inRange, "Buckets",
			"is %d: it must be between 1 and %d, or 0 for two weighted counters", buckets, MaxBuckets),
		faultIf(inRange && window > 0 && window%(time.Duration(buckets)*time.Microsecond) != 0,
			"Buckets", "is %d: %v does not divide into as many parts of whole microseconds", buckets, window),
	); err != nil {
		return nil, err
	}
	us := window.Microseconds()
	tick := us / int64(buckets)
	return &SlidingLog{
		traits:  logTraits("sb1", 1),
		windows: []logWindow{{limit, us, us + tick, 0}},
		tick:    tick, most: int64(buckets) + 2,
	}, nil
}

func logTraits(tag string, windows int) traits {
	return traits{tag: tag, script: "sliding_log", fields: 3*windows + 3, denominator: 1}
}

func (l *SlidingLog) Cost(n int64) Cost     { return Cost{min(n, 2*l.largest()), 0} }
func (l *SlidingLog) Window() time.Duration { return micros(l.windows[0].width) }

// Longest returns the limit of the longest window, and its width.
func (l *SlidingLog) Longest() (limit int64, width time.Duration) {
	return l.windows[0].limit, micros(l.windows[0].width)
}

// Capacity returns the smallest limit. More units never fit at once.
func (l *SlidingLog) Capacity() int64 {
	least := l.windows[0].limit
	for _, w := range l.windows {
		least = min(least, w.limit)
	}
	return least
}

func (l *SlidingLog) largest() (n int64) {
	for _, w := range l.windows {
		n = max(n, w.limit)
	}
	return n
}

func (l *SlidingLog) Parameters(args []int64) []int64 {
	args = append(args, 0, int64(len(l.windows)), l.tick, l.most)
	for _, w := range l.windows {
		args = append(args, w.limit, w.keep)
	}
	return args
}

// Share returns the n-th part of each limit, at least 1.
func (l *SlidingLog) Share(n int64) Limit {
	s := *l
	s.windows = slices.Clone(l.windows)
	for i := range s.windows {
		s.windows[i].limit = max(1, s.windows[i].limit/n)
	}
	return &s
}

func (l *SlidingLog) Read(reply []int64, charged Cost, n int64) Reading {
	var (
		r     Reading
		all   bool // the window with the fewest units remaining is unused
		phase = reply[3*len(l.windows)+1]
	)
	r.Limit, r.Window = l.Longest()
	for i, w := range l.windows {
		count, wait, more := reply[3*i], reply[3*i+1], reply[3*i+2]
		retry := micros(wait)
		if wait < 0 {
			retry = Never
		}
		if retry > 0 {
			r.Violated |= 1 << w.at
		}
		used := count + charged.Whole
		remaining := max(0, w.limit-used)
		next := time.Duration(0)
		switch {
		case count > 0:
			next = micros(more)
		case used > 0:
			next = micros(w.keep - phase)
		}
		r.RetryAfter = max(r.RetryAfter, retry)
		if i == 0 {
			r.Used = used
		}
		// More units remain once every window with the fewest remaining has room.
		if i == 0 || remaining < r.Remaining {
			r.Remaining, r.NextAfter, all = remaining, next, used == 0
		} else if remaining == r.Remaining {
			r.NextAfter, all = max(r.NextAfter, next), all || used == 0
		}
	}
	if all { // an unused window has no more room to gain
		r.NextAfter = 0
		if r.Used > 0 && r.Remaining < r.Limit {
			r.NextAfter = Never
		}
	}
	r.ResetAfter = l.resetAfter(reply, charged.Whole > 0)
	return r
}

// resetAfter returns when the longest window, which is the last to recover fully, has done so.
func (l *SlidingLog) resetAfter(reply []int64, charged bool) time.Duration {
	size, keep := len(l.windows), l.windows[0].keep
	age, phase := reply[3*size], reply[3*size+1]
	switch found := reply[0] > 0; {
	case charged && found:
		return micros(keep - min(age, phase))
	case charged:
		return micros(keep - phase)
	case found:
		return micros(keep - age)
	}
	return 0
}
