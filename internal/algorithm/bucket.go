package algorithm

import "fmt"

// bucket is the state of one key.
type bucket struct {
	arrival     int64 // microseconds; the bucket is full again then
	part        int64 // the fraction of arrival
	denominator int64
	since       int64 // time of the first charge with a receipt since the bucket was full, or never
	reach       int64 // no charge has raised the level above 2^reach since the bucket was full

	of    *TokenBucket
	now   int64 // the time of Find
	level Cost
}

const never = -1

func (b *TokenBucket) NewState() State {
	return &bucket{of: b, denominator: 1, since: never, reach: reachOf(0)}
}

func (s *bucket) Expires() int64 { return s.arrival + 1 }

func (s *bucket) Empty() bool { return s.arrival <= s.now && s.part == 0 }

func (s *bucket) Value() string {
	value, denominator := fmt.Sprintf("%02d%016d", s.reach, s.arrival), int64(1)
	if s.part > 0 {
		denominator = s.denominator
	}
	if s.part > 0 || s.since != never {
		value += fmt.Sprintf(" %d %d", s.part, denominator)
	}
	if s.since != never {
		value += fmt.Sprintf(" %016d", s.since)
	}
	return value
}

func (s *bucket) Spent(now int64) float64 {
	return float64(max(0, s.arrival-now)) / float64(s.of.capacity.Whole+1)
}

func (b *TokenBucket) Find(st State, now int64) (changed bool) {
	s := st.(*bucket)
	s.of, s.now = b, now
	s.level = Cost{s.arrival - now, s.part}
	switch {
	case s.level.Whole < 0:
		s.level = Cost{}
	case s.part > 0 && s.denominator != b.denominator:
		s.level = Cost{s.level.Whole + 1, 0}
	}
	if longest := int64(1) << s.reach; s.level.Whole > longest {
		s.clip(longest)
		return true
	}
	return false
}

// clip lowers a level to which no charge has raised the bucket: the clock went back. It becomes the
// capacity, but at least half of the longest, which a narrower limit leaves to a wider one, and at most
// the longest. So the next limit that finds the level takes it as it is.
func (s *bucket) clip(longest int64) {
	switch most := s.of.capacity; {
	case most.Whole < longest/2:
		s.level = Cost{longest / 2, 0}
	case most.Whole < longest:
		s.level = most
	default:
		s.level = Cost{longest, 0}
	}
	s.keep(s.level)
}

func (s *bucket) Reply(_ Cost, reply []int64) []int64 {
	return append(reply, s.level.Whole, s.level.Fraction, 0)
}

func (s *bucket) Fits(c Cost, t Terms) bool {
	b, most := s.of, s.of.capacity
	if t.Op == Reserve {
		switch {
		case b.queue && c != (Cost{}) && s.level.compare(Cost{t.Bound, 0}) > 0:
			return false
		case !b.queue:
			if c.compare(b.capacity) > 0 {
				return false
			}
			most.Whole += t.Bound
		}
	}
	return s.level.plus(c, b.denominator).compare(most) <= 0
}

func (s *bucket) Commit(c Cost, t Terms) int64 {
	b := s.of
	if t.Op == Force {
		if room := b.deepest().minus(s.level, b.denominator); room.Whole < 0 {
			c = Cost{}
		} else if c.compare(room) > 0 {
			c = room
		}
	}
	if s.level == (Cost{}) { // the bucket was full
		s.since, s.reach = never, reachOf(0)
	}
	if t.Receipts && s.since == never {
		s.since = s.now
	}
	level := s.level.plus(c, b.denominator)
	s.reach = max(s.reach, b.reach, reachOf(level.Whole))
	s.keep(level)
	return max(s.now, s.since) + 1
}

// deepest returns the level up to which Force charges: longestDebt above the capacity.
func (b *TokenBucket) deepest() Cost {
	return b.capacity.plus(Cost{longestDebt, 0}, b.denominator)
}

// Give refunds the whole cost, at most the level, unless the bucket has been full since the charge.
func (s *bucket) Give(c Cost, receipt int64) bool {
	counts := s.since != never && receipt > s.since || receipt == AnyReceipt
	if s.level == (Cost{}) || !counts {
		return false
	}
	if level := s.level.minus(c, s.of.denominator); level.Whole >= 0 {
		s.keep(level)
	} else {
		s.keep(Cost{})
	}
	return true
}

// keep stores the level at the time of Find.
func (s *bucket) keep(level Cost) {
	s.arrival, s.part, s.denominator = s.now+level.Whole, level.Fraction, s.of.denominator
}
