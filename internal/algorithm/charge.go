package algorithm

// MaxCharges is the largest number of charges in one request.
const MaxCharges = 16

// Rules say how the charges under one limit of a policy count.
type Rules struct {
	// Shadow charges never deny a request. They are committed if they fit and the request is
	// admitted.
	Shadow bool
	// HoldFor is how long units are held, in microseconds, and prolonged by Renew. It is 0 if the
	// state has no holds.
	HoldFor int64
	// Adjusts says that the adjustments of the state count. They are those of a quota.
	Adjusts bool
	Seeds   bool // the key is to be seeded before it is charged
}

// Beside reports whether the state has holds or adjustments beside it.
func (r *Rules) Beside() bool { return r.HoldFor > 0 || r.Adjusts }

// Charge is a cost on one key under one limit.
type Charge struct {
	Rules
	Kept
	Limit      Limit
	Cost       Cost
	Units      int64       // of the cost
	Receipt    int64       // identifies the charge to refund
	Correction *Correction // of Settle and Renew
	Adjustment *Adjustment // of Adjust and AtLeast; empty for Ask

	held int64 // units of the state that were held before
	end  int   // of the charge's part of the reply
}

// Kept is what is kept of a key under a limit. All of it may be nil.
type Kept struct {
	State       State
	Holds       *Holds
	Adjustments *Adjustments
}

// Empty reports whether nothing is kept.
func (k *Kept) Empty() bool {
	return k.State == nil && k.Holds.Empty() && k.Adjustments.Empty()
}

// Expires returns when nothing of it counts any more.
func (k *Kept) Expires() int64 {
	last := max(k.Holds.Expires(), k.Adjustments.Expires())
	if k.State == nil {
		return last
	}
	return max(last, k.State.Expires())
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
