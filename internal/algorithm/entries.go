package algorithm

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// entries is the state of one key. The second part is what Find found.
type entries struct {
	kept      int // the first of all that counted when it was written
	all       []entry
	total     int64
	keptAhead int64
	expires   int64

	first int // the first of all that counts
	ahead int64
	time  int64
	live  []int64
	spent float64
}

type entry struct{ time, before int64 }

// totals go on modulo this.
const totals = 1 << 52

// rewritten is how many entries are rewritten at most to give one back.
const rewritten = 1000

func between(from, to int64) int64 { return (to - from + totals) % totals }

func (l *SlidingLog) NewState() State { return new(entries) }

func (s *entries) Expires() int64 { return s.expires }

func (s *entries) Spent(now int64) float64 {
	if now >= s.expires {
		return 0
	}
	return s.spent
}

func (s *entries) Empty() bool { return s.kept == len(s.all) }

func (s *entries) Value() string {
	var b strings.Builder
	last := s.last()
	fmt.Fprintf(&b, "%016d%016d%016d%016d%016d%016d", s.kept, len(s.all), s.total, last.time, last.before, s.keptAhead)
	for i := range len(s.all) - 1 {
		fmt.Fprintf(&b, "%016d%016d", s.all[i].time, s.all[i].before)
	}
	return b.String()
}

func (s *entries) last() entry {
	if len(s.all) == 0 {
		return entry{}
	}
	return s.all[len(s.all)-1]
}

// before is the total before entry i, or all of it after the last.
func (s *entries) before(i int) int64 {
	if i == len(s.all) {
		return s.total
	}
	return s.all[i].before
}

// after is the first entry from low on whose time is after the given one.
func (s *entries) after(low int, time int64) int {
	return low + sort.Search(len(s.all)-low, func(i int) bool { return s.all[low+i].time > time })
}

// holding is the time of the entry with which the entries from first hold so many units.
func (s *entries) holding(first int, units int64) int64 {
	i := sort.Search(len(s.all)-1-first, func(i int) bool {
		return between(s.before(first), s.before(first+i+1)) >= units
	})
	return s.all[first+i].time
}

func (l *SlidingLog) Find(st State, now int64) (changed bool) {
	s := st.(*entries)
	s.ahead = s.keptAhead
	s.time = now + s.ahead
	if last := s.last().time; s.time < last {
		s.ahead, s.time, changed = last-now, last, true
	}
	s.live = s.live[:0]
	first := s.kept
	if s.ahead > 0 && now-now%l.tick > s.last().time && s.after(first, s.time-l.windows[0].keep) == len(s.all) {
		first, s.ahead, s.time = len(s.all), 0, now // nothing counts that it could speak of, and no receipt does
	}
	s.spent = 0
	for i, w := range l.windows {
		first = s.after(first, s.time-w.keep)
		if i == 0 {
			s.first = first
		}
		n := between(s.before(first), s.total)
		s.live = append(s.live, n)
		s.spent = max(s.spent, float64(n)/float64(w.limit))
	}
	if changed {
		l.store(s, false)
	}
	return changed
}

func (l *SlidingLog) Reply(st State, c Cost, reply []int64) []int64 {
	s := st.(*entries)
	first := s.first
	for i, w := range l.windows {
		first = s.after(first, s.time-w.keep)
		n, wait, more := s.live[i], int64(0), int64(0)
		if n > 0 {
			more = s.holding(first, max(1, n-w.limit+1)) + w.keep - s.time
		}
		if c.Whole > w.limit {
			wait = -1
		} else if n+c.Whole > w.limit {
			wait = s.holding(first, n+c.Whole-w.limit) + w.keep - s.time
		}
		reply = append(reply, n, wait, more)
	}
	return append(reply, s.time-s.last().time, s.time%l.tick, 0)
}

func (l *SlidingLog) Fits(st State, c Cost, _ Terms) bool {
	s := st.(*entries)
	for i, w := range l.windows {
		if s.live[i]+c.Whole > w.limit {
			return false
		}
	}
	return true
}

func (l *SlidingLog) Commit(st State, c Cost, t Terms) int64 {
	s := st.(*entries)
	n := c.Whole
	if t.Operation == Force {
		for i, w := range l.windows {
			n = min(n, 2*w.limit-s.live[i])
		}
		n = max(0, n)
	}
	receipt := int64(0)
	if n > 0 {
		now := s.time - s.time%l.tick
		last := len(s.all) - 1
		switch {
		case s.first == len(s.all):
			s.first, s.all, s.total = 0, append(s.all[:0], entry{now, 0}), 0
		case s.all[last].time >= now:
		case int64(len(s.all)-s.first) >= l.most:
			s.all[last].time = now // what is too much counts for longer than it would
		default:
			s.all = append(s.all, entry{now, s.total})
		}
		s.total = (s.total + n) % totals
		for i, w := range l.windows {
			s.spent = max(s.spent, float64(s.live[i]+n)/float64(w.limit))
		}
		receipt = s.last().time + 1
	}
	l.store(s, false)
	return receipt
}

func (l *SlidingLog) Give(st State, c Cost, receipt int64) bool {
	s := st.(*entries)
	i := s.after(s.first, receipt-2)
	if i >= len(s.all) || s.all[i].time != receipt-1 || len(s.all)-1-i > rewritten {
		return false
	}
	n := min(c.Whole, between(s.before(i), s.before(i+1)))
	if n <= 0 {
		return false
	}
	empty := n == between(s.before(i), s.before(i+1))
	for j := i + 1; j < len(s.all); j++ {
		s.all[j].before = between(n, s.all[j].before)
	}
	s.total = between(n, s.total)
	if empty {
		s.all = slices.Delete(s.all, i, i+1)
	}
	l.store(s, empty)
	return true
}

// few is how many entries that count are written anew with each change, which is cheaper than to change some.
const few = 16

// store drops what no longer counts where all is written anew: after a gap, where little counts, and once what does not is
// half of all.
func (l *SlidingLog) store(s *entries, gap bool) {
	if gap || len(s.all)-s.first <= few || s.first > 64 && 2*s.first >= len(s.all) {
		s.all = append(s.all[:0], s.all[s.first:]...)
		s.first = 0
		if len(s.all) == 0 {
			s.total = 0
		}
	}
	s.kept, s.keptAhead = s.first, s.ahead
	newest := s.last().time
	s.expires = newest + max(l.windows[0].keep-s.ahead, l.tick) // receipts speak of the log's clock while that is ahead
}
