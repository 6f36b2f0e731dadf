package core

import (
	"time"

	"github.com/headgate/headgate/internal/algorithm"
)

// FixedWindow allows Limit units in each of the windows that follow each other. At the edge of two it admits up to
// 2·Limit in a moment.
//
// A changed limit holds at once: what was counted stays. A window that runs when the width changes ends the new width
// after it started; one that has ended starts anew.
type FixedWindow struct {
	Limit  int64         // units in each window, at most 10^15
	Window time.Duration // of whole microseconds, at most 25 years
	// FromFirst starts a key's window with the first charge after the one before. If false, all windows start at
	// multiples of their width since 1970, UTC.
	FromFirst bool
}

func (w FixedWindow) compile() (compiled, error) {
	limit, err := algorithm.NewFixedWindow(w.Limit, w.Window, w.FromFirst)
	return counted("FixedWindow", limit, err)
}

// SlidingWindow allows about Limit units in every window that ends now.
//
// With Buckets 0 it estimates from two counters: of a window that started with a key's first charge or follows that, and
// of the one before, by the part of it that is still covered. That takes for granted that the one before was spent
// evenly. At worst it admits 2·Limit - 1 in a window. Time counts in ticks of the microsecond, or longer ones where
// Limit times Window is above 2^50 microseconds.
//
// With Buckets from 1 to 1000 it counts in as many small windows. A charge counts until all of its small window is further
// back than Window, so up to Buckets + 1 small windows are kept. It never admits more than Limit in a window, and is up to
// a small window stricter than a [SlidingLog].
//
// A changed limit holds at once: what was counted stays; of two counters, that before weighs at most twice the new limit. With a changed
// window, two counters start anew, and the entries of small windows count for the new width. Changing between 0 Buckets
// and more starts anew.
type SlidingWindow struct {
	Limit   int64         // units in a window, at most 10^12 with Buckets 0, else 10^15
	Window  time.Duration // of whole microseconds, at most 25 years
	Buckets int
}

// AnySecond returns a window that admits at most n in any second. It counts in steps of 1/60 of it.
func AnySecond(n int64) SlidingWindow { return anyOf(n, time.Second) }

// AnyMinute returns a window that admits at most n in any minute. It counts in steps of a second.
func AnyMinute(n int64) SlidingWindow { return anyOf(n, time.Minute) }

// AnyHour returns a window that admits at most n in any hour. It counts in steps of a minute.
func AnyHour(n int64) SlidingWindow { return anyOf(n, time.Hour) }

func anyOf(n int64, width time.Duration) SlidingWindow {
	return SlidingWindow{Limit: n, Window: width, Buckets: 60}
}

func (w SlidingWindow) compile() (compiled, error) {
	if w.Buckets != 0 {
		limit, err := algorithm.NewBuckets(w.Limit, w.Window, w.Buckets)
		return counted("SlidingWindow", limit, err)
	}
	limit, err := algorithm.NewSlidingWindow(w.Limit, w.Window)
	return counted("SlidingWindow", limit, err)
}

// SlidingLog allows at most the limit of each of its windows in every window of that width, exactly. It remembers when
// what was charged: in Redis, up to 64 bytes for each charge that still counts. [Result.Violates] says which windows stand
// in the way. Limit, Window and Used of a Result are those of the longest window, and Remaining is the least of all windows.
//
// Changed limits hold at once, and so do changed windows, as far as what they cover was still remembered.
type SlidingLog struct {
	Windows []Window // 1 to 8, of different widths
}

// Window is a limit for every window of one width.
type Window struct {
	Limit int64         // at most 10,000
	Width time.Duration // of whole microseconds, at most 25 years
}

func (l SlidingLog) compile() (compiled, error) {
	windows := make([]algorithm.Window, len(l.Windows))
	for i, w := range l.Windows {
		windows[i] = algorithm.Window(w)
	}
	limit, err := algorithm.NewSlidingLog(windows)
	return counted("SlidingLog", limit, err)
}
