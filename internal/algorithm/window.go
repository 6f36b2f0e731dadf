package algorithm

import (
	"errors"
	"fmt"
	"time"
)

// FixedWindow counts units in consecutive windows.
type FixedWindow struct {
	limit     int64
	width     int64 // microseconds
	fromFirst bool
	raises    Raises // that are part of the limit
}

// NewFixedWindow validates a limit for each window of the given width. Windows start at multiples
// of the width since 1970. If fromFirst is true, a window starts with the first charge after the
// previous one. NewFixedWindow returns every fault at once.
func NewFixedWindow(limit int64, window time.Duration, fromFirst bool) (*FixedWindow, error) {
	if err := errors.Join(checkLimit("Limit", limit, MaxCount), checkWindow("Window", window)); err != nil {
		return nil, err
	}
	return &FixedWindow{limit: limit, width: window.Microseconds(), fromFirst: fromFirst}, nil
}

func checkLimit(field string, limit, most int64) error {
	return errors.Join(
		faultIf(limit < 0, field, "is %d: it must not be negative", limit),
		faultIf(limit == 0, field, "is 0: nothing would ever be allowed (DenyAll is a limit of its own)"),
		faultIf(limit > most, field, "is %d: it must be at most %d", limit, most))
}

func checkWindow(field string, window time.Duration) error {
	switch {
	case window <= 0:
		return &Fault{field, fmt.Sprintf("is %v: it must be positive", window)}
	case window%time.Microsecond != 0:
		return &Fault{field, fmt.Sprintf("is %v: it must be whole microseconds", window)}
	case window > Longest/4:
		return &Fault{field, fmt.Sprintf("is %v: it must be at most 25 years", window)}
	}
	return nil
}

func (f *FixedWindow) Tag() string           { return "fw2" }
func (f *FixedWindow) Script() string        { return "window" }
func (f *FixedWindow) Fields() int           { return 5 }
func (f *FixedWindow) Denominator() int64    { return 1 }
func (f *FixedWindow) Cost(n int64) Cost     { return counted(n, mostUnits) }
func (f *FixedWindow) Capacity() int64       { return f.limit }
func (f *FixedWindow) Window() time.Duration { return micros(f.width) }

func (f *FixedWindow) Parameters(args []int64) []int64 {
	width := f.width
	if f.fromFirst {
		width = -width
	}
	return append(args, 0, f.limit, width)
}

// Share returns the n-th part of the limit, at least 1.
func (f *FixedWindow) Share(n int64) Limit {
	s := *f
	s.limit = max(1, f.limit/n)
	return &s
}

// window is the state of one key as stored, and the result of Find.
type window struct {
	kept  windowCount
	found windowCount

	begin, after, now, limit int64
}

type windowCount struct{ start, finish, count, debt int64 }

func (f *FixedWindow) NewState() State { return new(window) }

func (s *window) Expires() int64 {
	if s.kept.debt > 0 {
		return s.after
	}
	return s.kept.finish
}

func (s *window) Empty() bool { return s.kept.count == 0 && s.kept.debt == 0 }

func (s *window) Value() string {
	w := &s.kept
	if w.debt == 0 {
		return fmt.Sprint(w.start, w.count, w.finish-w.start)
	}
	return fmt.Sprint(w.start, w.count, w.finish-w.start, w.debt)
}

func (s *window) Spent(now int64) float64 {
	if now >= s.Expires() {
		return 0
	}
	return float64(s.kept.count) / float64(s.limit)
}

// Find implements Limit. If the limit got another width, a running window ends the new width after
// it started.
func (f *FixedWindow) Find(st State, now int64) (changed bool) {
	s := st.(*window)
	start := now
	if !f.fromFirst {
		start = now - now%f.width
	}
	s.found = s.kept
	if w := &s.found; w.finish > 0 {
		next := f.width // the length of the window that takes the debt
		if w.start > now {
			w.finish += now - w.start
			w.start, changed = now, true // the clock went back
		}
		if now >= w.finish {
			next = w.finish - w.start // the old width
		} else if w.finish != w.start+f.width {
			w.finish = w.start + f.width
			changed = changed || now < w.finish
		}
		switch {
		case now < w.finish:
			start = w.start
		case w.debt > 0 && now < w.finish+min(next, f.width):
			start = w.finish
			changed = changed || next != f.width
		default:
			*w = windowCount{}
		}
	}
	s.enter(now, f.limit, start, start+f.width, start+2*f.width)
	if changed {
		s.kept = s.found
	}
	return changed
}

// enter moves the count to the window at now. It reports whether the clock went back. A count that
// began within the window stays.
func (s *window) enter(now, limit, start, finish, after int64) (changed bool) {
	w := &s.found
	switch {
	case w.start >= finish:
		// The window of the count is yet to come. This is kept even if nothing is charged.
		// Otherwise the window would not end.
		if w.start == finish {
			w.debt = max(w.debt, w.count)
		}
		w.start, changed = max(now, start+1), true // so its receipts differ from those of that count
	case w.start < start:
		if w.finish < start {
			w.debt = 0
		}
		w.start, w.count, w.debt = start, w.debt, 0
	}
	w.finish = finish
	s.begin, s.after, s.now, s.limit = start, after, now, limit
	if changed {
		s.kept = *w
	}
	return changed
}

func (f *FixedWindow) Reply(st State, _ Cost, reply []int64) []int64 {
	s := st.(*window)
	w := &s.found
	return append(reply, w.count, w.finish-s.now, w.debt, w.finish, 0)
}

func (f *FixedWindow) receiptOf(reply []int64) int64 { return reply[3] - f.width + 1 }

func (f *FixedWindow) Fits(st State, c Cost, _ Terms) bool {
	s := st.(*window)
	return s.found.count+c.Whole <= s.limit
}

func (f *FixedWindow) Commit(st State, c Cost, t Terms) int64 {
	s := st.(*window)
	w, n := &s.found, c.Whole
	if t.Operation == Force {
		n = max(0, min(n, 2*s.limit-w.count))
		w.debt += max(0, w.count+n-max(w.count, s.limit))
	}
	w.count += n
	s.kept = *w
	return w.start + 1
}

func (f *FixedWindow) Give(st State, c Cost, receipt int64) bool {
	s := st.(*window)
	w := &s.found
	if receipt != w.start+1 && receipt != AnyReceipt || w.count == 0 {
		return false
	}
	count := max(0, w.count-c.Whole)
	// The debt is paid first, because the limit may have been raised since. If the clock went back
	// out of a period, the debt is that period's count, and only what exceeds the limit is paid.
	less := w.count - count
	if w.start > s.begin {
		less = max(0, w.count-s.limit) - max(0, count-s.limit)
	}
	w.count, w.debt = count, max(0, w.debt-less)
	s.kept = *w
	return true
}

// Expire refunds a hold that ended at a time. If its window has ended since, only the window's debt
// has outlived it: the next window owes nothing for what did not count any more.
func (f *FixedWindow) Expire(st State, c Cost, receipt, ended int64) bool {
	s := st.(*window)
	if f.Give(st, c, receipt) {
		return true
	}
	w := &s.kept
	if s.found.count == 0 || receipt != w.start+1 || ended >= w.finish {
		return false
	}
	w.count, w.debt = max(0, w.count-c.Whole), max(0, w.debt-c.Whole)
	s.after = s.found.finish
	if w.debt == 0 {
		*w = windowCount{}
	}
	return true
}

func (f *FixedWindow) Read(reply []int64, charged Cost, n int64) Reading {
	return f.read(reply, charged, n, f.width, f.width)
}

// read interprets the reply of a window of the given width. The next window has the width next. It
// begins with the debt, and the one after it with nothing.
func (f *FixedWindow) read(reply []int64, charged Cost, n, width, next int64) Reading {
	count, left, debt, finish := reply[0], reply[1], reply[2], reply[3]
	r := Reading{Limit: f.limit, Used: count + charged.Whole, Window: micros(width)}
	r.Remaining = max(0, f.limit-r.Used)
	r.RetryAfter = f.later(reply, n, next, 0)
	if r.RetryAfter > 0 {
		r.Violated = 1
	}
	r.Delay = r.RetryAfter
	if r.Used > 0 {
		r.NextAfter = f.later([]int64{r.Used, left, debt}, r.Remaining+1, next, 0)
		r.ResetAfter, r.Reset = micros(left), finish
		if debt > 0 {
			r.ResetAfter, r.Reset = micros(left+next), finish+next
		}
	}
	return r
}

// later returns the first wait, at least from, after which n units fit, given the reply of a window
// and the width of the next one. More room comes when a window ends, and less when a raise does.
func (f *FixedWindow) later(reply []int64, n, next, from int64) time.Duration {
	count, left, debt := reply[0], reply[1], reply[2]
	if n > f.limit {
		return Never
	}
	for _, wait := range [...]int64{from, left, left + next} {
		used := int64(0)
		switch {
		case wait < from:
			continue
		case wait < left:
			used = count
		case wait < left+next:
			used = debt
		}
		if used+n <= f.limit-f.raises.ended(wait) {
			return micros(wait)
		}
	}
	return Never
}

// Later implements Quota.
func (f *FixedWindow) Later(reply []int64, n int64, from time.Duration) time.Duration {
	return f.later(reply, n, f.width, ceilMicros(from))
}

// Raised implements Quota.
func (f *FixedWindow) Raised(units int64, raises Raises) Limit {
	if units == 0 {
		return f
	}
	raised := *f
	raised.limit += units
	raised.raises = raises
	return &raised
}

func (f *FixedWindow) ends(st State, _ int64) int64 { return st.(*window).found.finish }

// After implements Mergeable, also for a Period.
func (f *FixedWindow) After(reply []int64, c Cost) { reply[0] += c.Whole }
