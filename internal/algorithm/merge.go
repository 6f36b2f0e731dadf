package algorithm

// Mergeable is a limit whose replies follow from the first one, so equal charges can be decided as
// one AtMost. A queue is not Mergeable, because its reservations leave one after the other.
type Mergeable interface {
	Limit
	// After changes a reply to what the same charge gets once c more has been charged.
	After(reply []int64, c Cost)
}

// After implements Mergeable.
func (b *TokenBucket) After(reply []int64, c Cost) {
	after := Cost{reply[0], reply[1]}.plus(c, b.denominator)
	reply[0], reply[1] = after.Whole, after.Fraction
}

// After implements Mergeable, also for a Period.
func (f *FixedWindow) After(reply []int64, c Cost) { reply[0] += c.Whole }

// After implements Mergeable.
func (w *SlidingWindow) After(reply []int64, c Cost) { reply[1] += c.Whole }
