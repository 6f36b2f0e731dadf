package algorithm

// MaxCharges is the largest number of charges in one request.
const MaxCharges = 16

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

// Back returns the cost of n units that were charged under the limit spent and are refunded under
// the limit now. If their denominators differ, the cost is rounded down.
func Back(spent, now Limit, n int64) Cost {
	c := spent.Cost(n)
	if spent.Denominator() != now.Denominator() {
		c.Fraction = 0
	}
	return c
}
