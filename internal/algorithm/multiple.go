package algorithm

// Mergeable is a limit whose replies follow from the first one, so equal charges can be decided as
// one AtMost. A queue is not Mergeable, because its reservations leave one after the other.
type Mergeable interface {
	Limit
	// After changes a reply to what the same charge gets once c more has been charged.
	After(reply []int64, c Cost)
}

// largestMultiple returns the largest n up to bound for which n times every cost fits, and sets the
// costs to that. Shadows do not bound it.
func largestMultiple(charges []Charge, bound int64) int64 {
	n := bound
	for i := range charges {
		if c := &charges[i]; !c.Shadow {
			n = c.howOften(n)
		}
	}
	for i := range charges {
		charges[i].Cost = charges[i].multiple(n)
	}
	return n
}

// howOften returns how often the cost fits at once, at most bound times.
func (c *Charge) howOften(bound int64) int64 {
	fits, exceeds := int64(0), bound+1
	for exceeds-fits > 1 {
		n := fits + (exceeds-fits)/2
		if c.State.Fits(c.multiple(n), Terms{Op: AtMost}) {
			fits = n
		} else {
			exceeds = n
		}
	}
	return fits
}

func (c *Charge) multiple(n int64) Cost { return c.Cost.times(n, c.Limit.Denominator()) }
