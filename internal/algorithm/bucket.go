package algorithm

import (
	"fmt"
	"strconv"
)

// bucket is the state of one key. The second part is what Find found. The whole backlog is what the limit sees of it
// and what is hidden from it.
type bucket struct {
	arrival, fraction, denominator int64
	returned, promised, forgiven   int64 // all 0 where none but plain charges were made
	start, capacity                int64 // when it was found last, and by which limit
	earliest, written, under       int64
	within, forgave                int64

	backlog Cost
	hidden  int64
	waived  int64 // what is left of the forgiven
	gone    int64
	promise int64
}

func (b *TokenBucket) NewState() State { return &bucket{denominator: 1} }

func (s *bucket) Expires() int64 {
	if s.start == 0 {
		return 1<<63 - 1
	}
	return max(s.arrival+s.returned, s.promised) + 1
}

func (s *bucket) Value() string {
	switch {
	case s.forgiven > 0:
		return fmt.Sprint(s.arrival, s.fraction, s.denominator, s.returned, s.earliest, s.promised, s.written, s.under, s.forgiven, s.within, s.forgave)
	case s.returned > 0 || s.promised > 0:
	case s.fraction > 0:
		return fmt.Sprint(s.arrival, s.fraction, s.denominator)
	default:
		return strconv.FormatInt(s.arrival, 10)
	}
	return fmt.Sprint(s.arrival, s.fraction, s.denominator, s.returned, s.earliest, s.promised, s.written, s.under)
}

func (s *bucket) Spent(now int64) float64 {
	if s.start == 0 {
		now = 0
	}
	return float64(max(0, s.arrival-now)) / float64(s.capacity+1)
}

func (b *TokenBucket) Find(st State, now int64) (changed bool) {
	s := st.(*bucket)
	s.start, s.capacity = now, b.capacity.Whole
	if b.frozen {
		s.start = 0
	}
	s.promise = 0
	if s.promised > 0 {
		if back := s.written - s.start; back > 0 {
			s.arrival, s.returned, s.earliest = s.arrival-back, min(longest, s.returned+back), 0
			s.promised, s.written = s.promised-back, s.start
			changed = true
		}
		s.promise = max(0, s.promised-s.start)
	}
	found, gone := Cost{s.arrival - s.start, s.fraction}, s.returned
	if found.Fraction > 0 && s.denominator != b.denominator {
		found = Cost{found.Whole + 1, 0}
	}
	if found.ceil()+gone <= 0 {
		gone = 0
	}
	if found.Whole < 0 {
		found = Cost{}
	}
	within := s.within
	s.hidden, s.waived, s.gone = 0, min(s.forgiven, found.Whole), gone
	if s.waived == 0 {
		within = 0
	} else if b.capacity.Whole <= within {
		if found.Whole < s.forgiven {
			found = Cost{found.ceil(), 0} // none of it is seen
			s.waived = found.Whole
		}
		s.hidden = s.waived
		found.Whole -= s.hidden
	}
	reach := Cost{b.capacity.Whole + s.promise, b.capacity.Fraction}
	if b.capacity.Whole < within {
		reach = Cost{within + 1 + s.promise, 0} // with what is not known of its capacity
	}
	if found.Whole > reach.Whole+1 && !b.frozen { // more than what is rounded between two limits
		// Kept even if nothing is charged, or it would not drain.
		s.within = max(b.capacity.Whole, within)
		s.hidden += found.minus(reach, b.denominator).ceil()
		s.waived, found = s.hidden, reach
		b.keep(s, found.plus(Cost{s.hidden, 0}, b.denominator), gone)
		s.forgave = s.start + s.hidden + found.ceil() + gone
		changed = true
	}
	s.backlog = found
	return changed
}

// Spend charges n units at now if they fit, or only looks at that, as Find, Fits, Commit and Read do together. It leaves to these,
// and returns false, what was not found before or is more than the time until the bucket is full. The reading is to be zero.
func (b *TokenBucket) Spend(st State, now, n int64, look bool, r *Reading) (fits, ok bool) {
	s := st.(*bucket)
	found := Cost{s.arrival - now, s.fraction}
	if s.start == 0 || s.returned|s.promised|s.forgiven != 0 || b.frozen || found.Whole > b.capacity.Whole ||
		found.Fraction > 0 && s.denominator != b.denominator {
		return false, false
	}
	if found.Whole < 0 {
		found = Cost{}
	}
	after, cost := found, b.Cost(n)
	sum := found.plus(cost, b.denominator)
	fits = sum.compare(b.capacity) <= 0
	if fits && !look && cost != (Cost{}) {
		after = sum
		s.arrival, s.fraction, s.denominator = now+sum.Whole, sum.Fraction, b.denominator
	}
	s.start, s.capacity = now, b.capacity.Whole
	b.tell(r, found, sum, after, n)
	return fits, true
}

func (b *TokenBucket) Reply(st State, _ Cost, reply []int64) []int64 {
	s := st.(*bucket)
	return append(reply, s.backlog.Whole, s.backlog.Fraction, 0)
}

func (b *TokenBucket) Fits(st State, c Cost, t Terms) bool {
	s := st.(*bucket)
	reach := b.capacity
	if t.Operation == Reserve {
		switch {
		case b.queue && s.backlog.compare(Cost{t.Bound, 0}) > 0:
			return false
		case !b.queue && !b.frozen:
			if c.compare(b.capacity) > 0 {
				return false
			}
			reach.Whole += t.Bound
		}
	}
	return s.backlog.plus(c, b.denominator).compare(reach) <= 0
}

func (b *TokenBucket) Commit(st State, c Cost, t Terms) int64 {
	s := st.(*bucket)
	if t.Operation == Force {
		reach := Cost{b.capacity.Whole + min(b.capacity.Whole, furthest), b.capacity.Fraction}
		if room := reach.minus(s.backlog, b.denominator); room.Whole < 0 {
			c = Cost{}
		} else if c.compare(room) > 0 {
			c = room
		}
	}
	sum, promise := s.backlog.plus(c, b.denominator), s.promise
	under := s.hidden + b.capacity.Whole
	if promise > 0 {
		under = min(under, s.under)
	}
	if t.Operation == Reserve && b.queue && s.backlog != (Cost{}) {
		promise, under = max(promise, s.backlog.ceil()), 0
	}
	if over := sum.minus(b.capacity, b.denominator); over.compare(Cost{}) > 0 {
		promise = max(promise, over.ceil())
	}
	b.keep(s, Cost{s.hidden + sum.Whole, sum.Fraction}, s.gone)
	b.promise(s, promise, under)
	return s.start + s.hidden + sum.ceil() + s.gone
}

func (b *TokenBucket) Give(st State, c Cost, receipt int64, t Terms) bool {
	s := st.(*bucket)
	backlog := Cost{s.hidden + s.backlog.Whole, s.backlog.Fraction}
	since := s.start + backlog.ceil() + s.gone - receipt + b.short()
	left := receipt - s.start
	if s.gone > 0 && receipt >= s.earliest {
		left -= s.gone
	}
	if since != 0 && b.denominator > 1 {
		left-- // by which it may have been rounded up
	}
	if s.promise > 0 && since != 0 {
		left = 0
	}
	// What is forgiven is what comes back first, of a charge that was there then: limits within see that only which they
	// saw. What was charged since lies above it.
	above := int64(0)
	if receipt > s.forgave {
		above = max(0, left-s.waived)
	}
	if c.Whole >= left && !b.frozen {
		c = Cost{left, 0}
	}
	if c.compare(backlog) > 0 {
		c = backlog
	}
	if c.compare(Cost{}) <= 0 {
		return false
	}
	s.waived = max(0, s.waived-max(0, c.ceil()-above))
	gone := s.gone
	if since != 0 && !b.frozen {
		if gone == 0 || receipt < s.earliest {
			s.earliest = receipt
		}
		gone = min(longest, gone+c.ceil())
	}
	rest, promise, under := backlog.minus(c, b.denominator), s.promise, s.under
	b.keep(s, rest, gone)
	if since == 0 && t.Bound > 0 {
		promise = min(promise, max(0, rest.ceil()-under)) // as before the charge
	} else {
		under = max(0, under-c.ceil()) // the rest of the charge leaves when it was told to
	}
	b.promise(s, promise, under)
	return true
}

// promise keeps when the last reservation leaves and every debt is paid, from now.
func (b *TokenBucket) promise(s *bucket, promise, under int64) {
	s.promised, s.written, s.under = 0, 0, 0
	if promise > 0 {
		s.promised, s.written, s.under = s.start+promise, s.start, under
	}
}

// keep keeps a whole backlog.
func (b *TokenBucket) keep(s *bucket, backlog Cost, returned int64) {
	s.arrival, s.fraction = s.start+backlog.Whole, backlog.Fraction
	s.denominator, s.returned, s.forgiven = b.denominator, returned, s.waived
	if returned == 0 {
		s.earliest = 0
	}
	if s.forgiven == 0 {
		s.within = 0
	}
}
