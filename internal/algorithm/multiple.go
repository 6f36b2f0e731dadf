package algorithm

// Mergeable is a limit whose replies follow from the first one, so equal charges can be decided as
// one AtMost. A queue is not Mergeable, because its reservations leave one after the other.
type Mergeable interface {
	Limit
	// After changes a reply to what the same charge gets once c more has been charged.
	After(reply []int64, c Cost)
}

// largestMultiple returns the largest n up to bound for which n times every cost fits, and sets the
// costs to that. It adds powers of two times the cost, from the largest down, so it only adds and
// compares. Sums stop at the longest length, which never fits, because shadows do not bound them.
func largestMultiple(charges []Charge, bound int64) (n int64) {
	var steps [MaxCharges][]Cost
	step := int64(1)
	for i := range charges {
		steps[i] = []Cost{charges[i].Cost}
		charges[i].Cost = Cost{}
	}
	for ; step <= bound/2; step *= 2 {
		for i, c := range charges {
			last := steps[i][len(steps[i])-1]
			last = last.plus(last, c.Limit.Denominator())
			last.Whole = min(last.Whole, longest)
			steps[i] = append(steps[i], last)
		}
	}
	for ; step > 0; step /= 2 {
		var next [MaxCharges]Cost
		fits := n+step <= bound
		for i, c := range charges {
			last := len(steps[i]) - 1
			next[i] = c.Cost.plus(steps[i][last], c.Limit.Denominator())
			next[i].Whole = min(next[i].Whole, longest)
			steps[i] = steps[i][:last]
			fits = fits && (c.Shadow || c.Limit.Fits(c.State, next[i], Terms{Operation: AtMost}))
		}
		if fits {
			n += step
			for i := range charges {
				charges[i].Cost = next[i]
			}
		}
	}
	return n
}
