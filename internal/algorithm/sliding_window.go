package algorithm

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// SlidingWindow estimates the units in a window that ends now from two counters. The previous
// window counts by the part that is still covered. A key's windows start with its first charge.
type SlidingWindow struct {
	traits
	limit       int64
	width       int64 // microseconds
	ticks, tick int64 // ticks·tick >= width
}

// maxProduct bounds limit times ticks. Five such products are below 2^53.
const maxProduct = 1 << 50

// NewSlidingWindow validates a limit for every window of the given width. It returns every fault at
// once.
func NewSlidingWindow(limit int64, window time.Duration) (*SlidingWindow, error) {
	if err := errors.Join(checkLimit("Limit", limit, MaxCount/1000), checkWindow("Window", window)); err != nil {
		return nil, err
	}
	s := &SlidingWindow{limit: limit, width: window.Microseconds()}
	// Counters of different widths are unrelated.
	s.traits = traits{
		tag: "sw2" + strconv.FormatInt(s.width, 36), script: "sliding_window", fields: 4, denominator: 1,
	}
	s.measure()
	return s, nil
}

// measure sets the shortest tick for which limit times ticks is at most maxProduct.
func (w *SlidingWindow) measure() {
	most := maxProduct / w.limit
	w.tick = (w.width + most - 1) / most
	w.ticks = (w.width + w.tick - 1) / w.tick
}

func (w *SlidingWindow) Cost(n int64) Cost     { return Cost{min(n, 2*w.limit), 0} }
func (w *SlidingWindow) Capacity() int64       { return w.limit }
func (w *SlidingWindow) Window() time.Duration { return micros(w.width) }

func (w *SlidingWindow) Parameters(args []int64) []int64 {
	return append(args, 0, w.limit, w.ticks, w.tick, w.width)
}

// Share returns the n-th part of the limit, at least 1.
func (w *SlidingWindow) Share(n int64) Limit {
	s := *w
	s.limit = max(1, w.limit/n)
	s.measure()
	return &s
}

// counters is the state of one key.
type counters struct {
	kept  counterPair
	found counterPair

	of    *SlidingWindow
	since int64
}

type counterPair struct{ start, count, before int64 }

func (w *SlidingWindow) NewState() State { return &counters{of: w} }

func (s *counters) Expires() int64 { return s.kept.start + 2*s.of.width }

func (s *counters) Empty() bool { return s.kept.count == 0 && s.kept.before == 0 }

func (s *counters) Value() string { return fmt.Sprint(s.kept.start, s.kept.count, s.kept.before) }

func (s *counters) Spent(now int64) float64 {
	covered := 1 - float64(now-s.kept.start)/float64(s.of.width)
	if covered >= 0 {
		return (float64(s.kept.before)*covered + float64(s.kept.count)) / float64(s.of.limit)
	}
	return float64(s.kept.count) * max(0, 1+covered) / float64(s.of.limit)
}

func (w *SlidingWindow) Find(st State, now int64) (changed bool) {
	s := st.(*counters)
	c := s.kept
	switch {
	case c.start > now:
		c.start, changed = now, true
	case now-c.start >= 2*w.width:
		c = counterPair{}
	case now-c.start >= w.width:
		c = counterPair{c.start + w.width, 0, c.count}
	}
	if c.count == 0 && c.before == 0 {
		c.start = now
	}
	s.of, s.found, s.since = w, c, now-c.start
	if changed {
		s.kept = c
	}
	return changed
}

func (s *counters) Reply(_ Cost, reply []int64) []int64 {
	return append(reply, s.found.before, s.found.count, s.since, 0)
}

func (s *counters) Fits(c Cost, _ Terms) bool {
	w, count := s.of, s.found.count+c.Whole
	return count <= w.limit && w.product(s.found.before)*w.weight(s.since)+count*w.ticks <= w.limit*w.ticks
}

// weight returns how many ticks of the previous window are covered.
func (w *SlidingWindow) weight(since int64) int64 { return w.ticks - since/w.tick }

// product returns the count of the previous window, bounded so that its products stay below 2^53
// under a lowered limit.
func (w *SlidingWindow) product(before int64) int64 { return min(before, 2*w.limit) }

// covered returns the units of the previous window that still count, rounded up.
func (w *SlidingWindow) covered(before, since int64) int64 {
	return (w.product(before)*w.weight(since) + w.ticks - 1) / w.ticks
}

func (s *counters) Commit(c Cost, t Terms) int64 {
	n := c.Whole
	if t.Op == Force {
		n = max(0, min(n, 2*s.of.limit-s.found.count-s.of.covered(s.found.before, s.since)))
	}
	s.found.count += n
	s.kept = s.found
	return s.kept.start + 1
}

func (s *counters) Give(c Cost, receipt int64) bool {
	switch f := &s.found; {
	case receipt == f.start+1 && f.count > 0:
		f.count = max(0, f.count-c.Whole)
	case receipt == f.start-s.of.width+1 && f.before > 0:
		f.before = max(0, f.before-c.Whole)
	default:
		return false
	}
	s.kept = s.found
	return true
}

func (w *SlidingWindow) Read(reply []int64, charged Cost, n int64) Reading {
	before, count, since := reply[0], reply[1], reply[2]
	after := count + charged.Whole
	r := Reading{Limit: w.limit, Window: micros(w.width)}
	r.Used = after + w.covered(before, since)
	r.Remaining = max(0, w.limit-r.Used)
	r.RetryAfter = w.wait(before, count, since, n)
	if r.Used > 0 {
		r.NextAfter = w.wait(before, after, since, min(r.Remaining+1, w.limit))
		r.ResetAfter = w.wait(before, after, since, w.limit)
	}
	return r
}

// wait returns how long until n units fit. Of the units of the previous window, the share that
// still counts is the number of covered ticks divided by all ticks.
func (w *SlidingWindow) wait(before, count, since, n int64) time.Duration {
	if n > w.limit {
		return Never
	}
	// until returns the time from a window's start until n units fit. The window holds count units,
	// the previous one before.
	until := func(before, count int64) int64 {
		covered := w.ticks
		if before > 0 {
			covered = min(w.ticks, (w.limit-count-n)*w.ticks/w.product(before))
		}
		return min((w.ticks-covered)*w.tick, w.width)
	}
	if count+n <= w.limit {
		return micros(max(0, until(before, count)-since))
	}
	return micros(w.width - since + until(count, 0))
}

// After implements Mergeable.
func (w *SlidingWindow) After(reply []int64, c Cost) { reply[1] += c.Whole }
