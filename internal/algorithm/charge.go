package algorithm

// MaxCharges is the largest number of charges in one request.
const MaxCharges = 16

// Charge is a cost on one key under one limit.
type Charge struct {
	State State
	Limit Limit
	Cost  Cost
	// Shadow charges never deny a request. They are committed if they fit and the request is
	// admitted.
	Shadow bool
	// Receipt identifies the charge to refund.
	Receipt int64
	// Kept is nil if there is nothing beside the state, as of most charges.
	*Kept
	end int // of the charge's part of the reply
}

// Kept is what is kept beside the state of a charge, and what a request does with that.
type Kept struct {
	// Holds are those of the state. They count if HoldFor is set.
	Holds *Holds
	// Hold is the id under which units of the charge are held. It is empty if they are not.
	Hold string
	// HoldFor is how long they are held, in microseconds.
	HoldFor    int64
	Units      int64       // of the cost
	Correction *Correction // of Settle and Renew
	// Adjustments are those of the state. They count if Adjusts is set.
	Adjustments *Adjustments
	Adjusts     bool
	Seeds       bool        // the key is to be seeded before it is charged
	Adjustment  *Adjustment // of Adjust and AtLeast; empty for Ask
	// Held is how many units of the state were held before. Run sets it.
	Held int64
}

// IsAdjusted reports whether there are adjustments.
func (k *Kept) IsAdjusted() bool { return k != nil && !k.Adjustments.Empty() }

// Empty reports whether nothing is kept.
func (k *Kept) Empty() bool { return k == nil || k.Holds.Empty() && k.Adjustments.Empty() }

// Expires returns when nothing of it counts any more.
func (k *Kept) Expires() int64 {
	if k == nil {
		return 0
	}
	return max(k.Holds.Expires(), k.Adjustments.Expires())
}

// Debt returns the cost of n units that are charged whether they fit or not. A log, a sliding window
// and a block charge at most twice the limit.
func Debt(l Limit, n int64) Cost {
	switch l := l.(type) {
	case *FixedWindow:
		return counted(n, mostOwed)
	case *TokenBucket:
		return l.token.times(n, l.denominator)
	}
	return Cost{min(n, 2*l.Capacity()), 0}
}

// Back returns the cost of n units that were charged under the limit spent and are refunded under
// the limit now. If their denominators differ, the cost is rounded down.
func Back(spent, now Limit, n int64) Cost {
	c := spent.Cost(n)
	if spent.Denominator() != now.Denominator() {
		c.Fraction = 0
	}
	return c
}
