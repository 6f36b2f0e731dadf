package algorithm

import "fmt"

// window is the state of one key.
type window struct {
	kept    windowCount
	expires int64 // when what is kept expires, by the limit that stored it
	found   windowCount

	of         *FixedWindow
	begin, now int64
}

type windowCount struct{ start, finish, count, debt int64 }

func (f *FixedWindow) NewState() State { return &window{of: f} }

// Expires implements State. A debt lasts longer under a lower limit, and no limit that only asks makes it
// expire sooner.
func (s *window) Expires() int64 { return max(s.expires, s.ends()) }

// keep stores a count.
func (s *window) keep(w windowCount) {
	s.kept = w
	s.expires = s.ends()
}

// ends returns when what is kept expires under the limit that asked last.
func (s *window) ends() int64 {
	w := &s.kept
	if w.debt == 0 {
		return w.finish
	}
	windows, length := s.of.windows(w.debt), s.of.length()
	if s.of.calendar != nil {
		windows++ // the mean is not the length of each
	}
	if windows > longest/length {
		return s.now + longest
	}
	return min(w.finish+windows*length, s.now+longest)
}

func (s *window) Empty() bool { return s.kept.count == 0 && s.kept.debt == 0 }

func (s *window) Value() string {
	w := &s.kept
	if w.debt == 0 {
		return fmt.Sprint(w.start, w.count, w.finish-w.start)
	}
	return fmt.Sprint(w.start, w.count, w.finish-w.start, w.debt)
}

func (s *window) Spent(int64) float64 { return float64(s.kept.count) / float64(s.of.limit) }

// Find implements Limit. If the limit got another width, a running window ends the new width after
// it started.
func (f *FixedWindow) Find(st State, now int64) (changed bool) {
	s := st.(*window)
	s.of, s.now, s.found = f, now, s.kept
	if f.calendar != nil {
		return s.enter(f.start, f.finish)
	}
	w := &s.found
	if w.start > now {
		w.finish += now - w.start
		w.start, changed = now, true // the clock went back
	}
	switch {
	case !f.grant:
		changed = f.findWindow(s) || changed
	case now >= w.finish:
		*w = windowCount{start: now, finish: now + f.width}
	}
	if changed {
		s.keep(s.found)
	}
	return changed
}

// findWindow finds the window of now. It reports whether a running window got another width.
func (f *FixedWindow) findWindow(s *window) (changed bool) {
	now := s.now
	start := now
	if !f.fromFirst {
		start = now - now%f.width
	}
	if w := &s.found; w.finish > 0 {
		next := f.width // the length of the windows that take the debt
		if now >= w.finish {
			next = w.finish - w.start // the old width
		} else if w.finish != w.start+f.width {
			w.finish = w.start + f.width
			changed = now < w.finish
		}
		if now < w.finish {
			start = w.start
		} else if each := min(next, f.width); f.unpaid(w.debt, (now-w.finish)/each) > 0 {
			windows := (now - w.finish) / each
			w.debt = f.unpaid(w.debt, windows)
			w.finish += windows * each
			start = w.finish
			changed = changed || next != f.width
		} else {
			*w = windowCount{}
		}
	}
	s.enter(start, start+f.width)
	return changed
}

// enter moves the count to the window of now. It reports whether the clock went back. A count that
// began within the window stays.
func (s *window) enter(start, finish int64) (changed bool) {
	w := &s.found
	switch {
	case w.start >= finish:
		// The window of the count is yet to come. This is kept even if nothing is charged.
		// Otherwise the window would not end.
		if w.start == finish {
			w.debt = max(w.debt, w.count)
		}
		w.start, changed = max(s.now, start+1), true // so its receipts differ from those of that count
	case w.start < start:
		// Each window in between has paid. None is half as long again as another.
		length := s.of.length()
		w.count = s.of.unpaid(w.debt, (start-w.finish+length/2)/length)
		w.start, w.debt = start, s.of.unpaid(w.count, 1)
	}
	w.finish, s.begin = finish, start
	if changed {
		s.keep(*w)
	}
	return changed
}

func (s *window) Reply(_ Cost, reply []int64) []int64 {
	w := &s.found
	return append(reply, w.count, w.finish-s.now, w.debt, w.finish, 0)
}

func (s *window) Fits(c Cost, _ Terms) bool {
	return s.found.count+c.Whole <= s.of.limit
}

func (s *window) Commit(c Cost, t Terms) int64 {
	w, n := &s.found, c.Whole
	if t.Op == Force {
		n = max(0, min(n, mostOwed-w.count))
		if !s.of.grant {
			w.debt += max(0, w.count+n-max(w.count, s.of.limit))
		}
	}
	if s.of.extends && n > 0 {
		w.finish = s.now + s.of.width
	}
	w.count += n
	s.keep(*w)
	return w.start + 1
}

func (s *window) Give(c Cost, receipt int64) bool {
	w := &s.found
	if receipt != w.start+1 && receipt != AnyReceipt || w.count == 0 {
		return false
	}
	count := max(0, w.count-c.Whole)
	// The debt is paid first, because the limit may have been raised since. If the clock went back
	// out of a period, the debt is that period's count, and only what exceeds the limit is paid.
	less := w.count - count
	if w.start > s.begin {
		less = max(0, w.count-s.of.limit) - max(0, count-s.of.limit)
	}
	w.count, w.debt = count, max(0, w.debt-less)
	s.keep(*w)
	return true
}

// expire refunds a hold that ended at a time. If its window has ended since, only the window's debt
// has outlived it: the next window owes nothing for what did not count any more.
func (s *window) expire(c Cost, receipt, ended int64) bool {
	if s.Give(c, receipt) {
		return true
	}
	w := s.kept
	if s.found.count == 0 || receipt != w.start+1 || ended >= w.finish {
		return false
	}
	w.count, w.debt = max(0, w.count-c.Whole), max(0, w.debt-c.Whole)
	if w.debt == 0 {
		w = windowCount{}
	}
	s.keep(w)
	return true
}
