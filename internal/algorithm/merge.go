package algorithm

// Mergeable is a limit of which a reply tells all there is to know, so that equal charges can be decided as one: as many
// of them as fit. A queue is none, because reservations leave one after the other.
type Mergeable interface {
	Limit
	// After is the reply to the same charge once c more was charged.
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
