package core

import (
	"time"

	"github.com/headgate/headgate/internal/algorithm"
)

// FixedWindow admits Limit units in each of consecutive windows. Around the edge of two windows it
// admits up to 2·Limit.
//
// A changed limit holds at once, and the count stays. A running window whose width changes ends the
// new width after it started.
type FixedWindow struct {
	Limit  int64         // units in each window, at most 10^15
	Window time.Duration // of whole microseconds, at most 25 years
	// FromFirst starts a window with the first charge of the key after the window before. If false,
	// all windows start at multiples of their width since 1970, UTC.
	FromFirst bool
}

func (w FixedWindow) compile() (compiled, error) {
	return counted(algorithm.NewFixedWindow(w.Limit, w.Window, w.FromFirst))
}

// SlidingWindow admits about Limit units in any window.
//
// With Buckets 0 it estimates from two counters: the present window's, and the previous window's,
// weighted by the part of it that is still covered. The estimate assumes that the previous window
// was spent evenly. At worst it admits 2·Limit - 1 in a window. A key's windows start with its
// first charge. Time counts in microseconds, or in longer ticks if Limit times Window exceeds 2^50
// microseconds.
//
// With 1 to 1000 Buckets it counts in that many small windows. It never admits more than Limit in a
// window. A charge counts until its whole small window is older than Window, so it is stricter than
// a [SlidingLog] by up to one small window.
//
// A changed limit holds at once, and the counts stay; the counter of the window before weighs at
// most twice the new limit. If Window changes, two counters start again, and small windows count
// for the new width. A change between 0 Buckets and more starts again.
type SlidingWindow struct {
	Limit   int64         // units in a window, at most 10^15, or 10^12 with Buckets 0
	Window  time.Duration // of whole microseconds, at most 25 years
	Buckets int           // small windows, 0 to 1000
}

// AnySecond returns a window that admits at most n in any second. It counts in steps of 20 ms.
func AnySecond(n int64) SlidingWindow {
	return SlidingWindow{Limit: n, Window: time.Second, Buckets: 50}
}

// AnyMinute returns a window that admits at most n in any minute. It counts in steps of a second.
func AnyMinute(n int64) SlidingWindow {
	return SlidingWindow{Limit: n, Window: time.Minute, Buckets: 60}
}

// AnyHour returns a window that admits at most n in any hour. It counts in steps of a minute.
func AnyHour(n int64) SlidingWindow {
	return SlidingWindow{Limit: n, Window: time.Hour, Buckets: 60}
}

func (w SlidingWindow) compile() (compiled, error) {
	if w.Buckets != 0 {
		return counted(algorithm.NewBuckets(w.Limit, w.Window, w.Buckets))
	}
	return counted(algorithm.NewSlidingWindow(w.Limit, w.Window))
}

// SlidingLog admits exactly the limit of each of its windows in any window of that width. It keeps
// the time of each charge that still counts: in Redis that takes up to 80 bytes. [Result.Violates]
// reports which windows deny. Limit, Window and Used of a Result describe the longest window, and
// Remaining is the least of all windows. A window denies nothing if a longer one has no larger limit.
//
// Changed limits and windows hold at once, for the charges that are still kept.
type SlidingLog struct {
	Windows []Window // 1 to 8, of different widths
}

// Window is a limit for any window of one width.
type Window struct {
	Limit int64         // at most 10,000
	Width time.Duration // of whole microseconds, at most 25 years
}

func (l SlidingLog) compile() (compiled, error) {
	windows := make([]algorithm.Window, len(l.Windows))
	for i, w := range l.Windows {
		windows[i] = algorithm.Window(w)
	}
	return counted(algorithm.NewSlidingLog(windows))
}
