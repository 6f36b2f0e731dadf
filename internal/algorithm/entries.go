package algorithm

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// entries is the state of one key.
type entries struct {
	kept      int // index in all: the first entry that counted when the state was stored
	all       []logEntry
	total     int64
	keptAhead int64
	expires   int64

	of    *SlidingLog
	first int // index in all: the first entry that counts
	ahead int64
	time  int64
	live  []int64
	spent float64
}

type logEntry struct{ time, before int64 }

// modulus bounds the totals, which are never reset while a charge counts.
const modulus = 1 << 52

// maxRewritten is the largest number of entries that a refund rewrites.
const maxRewritten = 1000

func between(from, to int64) int64 { return (to - from + modulus) % modulus }

func (l *SlidingLog) NewState() State { return &entries{of: l} }

func (s *entries) Expires() int64 { return s.expires }

func (s *entries) Spent(int64) float64 { return s.spent }

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

func (s *entries) last() logEntry {
	if len(s.all) == 0 {
		return logEntry{}
	}
	return s.all[len(s.all)-1]
}

// before returns the total before entry i, and the total of all entries if i is their number.
func (s *entries) before(i int) int64 {
	if i == len(s.all) {
		return s.total
	}
	return s.all[i].before
}

// firstAfter returns the first entry from low on whose time is after the given one.
func (s *entries) firstAfter(low int, time int64) int {
	return low + sort.Search(len(s.all)-low, func(i int) bool { return s.all[low+i].time > time })
}

// timeOfUnit returns the time of the entry with which the entries from first hold that number of units.
func (s *entries) timeOfUnit(first int, units int64) int64 {
	i := sort.Search(len(s.all)-1-first, func(i int) bool {
		return between(s.before(first), s.before(first+i+1)) >= units
	})
	return s.all[first+i].time
}

func (l *SlidingLog) Find(st State, now int64) (changed bool) {
	s := st.(*entries)
	s.of, s.ahead = l, s.keptAhead
	s.time = now + s.ahead
	if last := s.last().time; s.time < last {
		s.ahead, s.time, changed = last-now, last, true
	}
	s.live = s.live[:0]
	first := s.kept
	if s.ahead > 0 && now-now%l.tick > s.last().time && s.firstAfter(first, s.time-l.windows[0].keep) == len(s.all) {
		// No entry that counts and no receipt has a later time.
		first, s.ahead, s.time = len(s.all), 0, now
	}
	s.spent = 0
	for i, w := range l.windows {
		first = s.firstAfter(first, s.time-w.keep)
		if i == 0 {
			s.first = first
		}
		n := between(s.before(first), s.total)
		s.live = append(s.live, n)
		s.spent = max(s.spent, float64(n)/float64(w.limit))
	}
	if changed {
		s.store(false)
	}
	return changed
}

func (s *entries) Reply(c Cost, reply []int64) []int64 {
	first := s.first
	for i, w := range s.of.windows {
		first = s.firstAfter(first, s.time-w.keep)
		n, wait, more := s.live[i], int64(0), int64(0)
		if n > 0 {
			more = s.timeOfUnit(first, max(1, n-w.limit+1)) + w.keep - s.time
		}
		if c.Whole > w.limit {
			wait = -1
		} else if n+c.Whole > w.limit {
			wait = s.timeOfUnit(first, n+c.Whole-w.limit) + w.keep - s.time
		}
		reply = append(reply, n, wait, more)
	}
	return append(reply, s.time-s.last().time, s.time%s.of.tick, 0)
}

func (s *entries) Fits(c Cost, _ Terms) bool {
	for i, w := range s.of.windows {
		if s.live[i]+c.Whole > w.limit {
			return false
		}
	}
	return true
}

func (s *entries) Commit(c Cost, t Terms) int64 {
	l, n := s.of, c.Whole
	if t.Op == Force {
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
			s.first, s.all, s.total = 0, append(s.all[:0], logEntry{now, 0}), 0
		case s.all[last].time >= now:
		case int64(len(s.all)-s.first) >= l.most:
			s.all[last].time = now // too many: the newest entry takes the units and counts for longer
		default:
			s.all = append(s.all, logEntry{now, s.total})
		}
		s.total = (s.total + n) % modulus
		for i, w := range l.windows {
			s.spent = max(s.spent, float64(s.live[i]+n)/float64(w.limit))
		}
		receipt = s.last().time + 1
	}
	s.store(false)
	return receipt
}

func (s *entries) Give(c Cost, receipt int64) bool {
	i := s.firstAfter(s.first, receipt-2)
	if i >= len(s.all) || s.all[i].time != receipt-1 || len(s.all)-1-i > maxRewritten {
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
	s.store(empty)
	return true
}

// fewEntries is the number of entries up to which writing all costs less than changing some.
const fewEntries = 16

// store makes what Find found the stored state. It drops the entries that no longer count where the
// script writes all entries anew: where few count, after a gap, and once half of them do not count.
func (s *entries) store(gap bool) {
	if gap || len(s.all)-s.first <= fewEntries || s.first > 64 && 2*s.first >= len(s.all) {
		s.all = append(s.all[:0], s.all[s.first:]...)
		s.first = 0
		if len(s.all) == 0 {
			s.total = 0
		}
	}
	s.kept, s.keptAhead = s.first, s.ahead
	newest := s.last().time
	s.expires = newest + max(s.of.windows[0].keep-s.ahead, s.of.tick) // receipts are on the log's clock
}
