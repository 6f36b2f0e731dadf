package algorithm

// Operation is what a request asks for. Its values are the names in the script.
type Operation string

// The operations of a request.
const (
	// Decide commits all charges of the request, or none. Verdict: bit i is set if charge i is
	// violated.
	Decide Operation = "decide"
	// Peek answers as Decide does and charges nothing.
	Peek Operation = "peek"
	// Reserve is Decide, but charges may take effect later, by at most the bound in microseconds.
	Reserve Operation = "reserve"
	// AtMost charges every cost n times, for the largest n up to the bound that fits. Verdict: n.
	AtMost Operation = "atmost"
	// Give refunds the cost of each charge by its receipt, as far as it still counts. Verdict: the
	// number of charges that got a refund.
	Give Operation = "give"
	// Force commits all charges, whether they fit or not, up to each algorithm's debt. Verdict: 0.
	Force Operation = "force"
	// Settle ends the holds of the charges and makes each what its Correction says. Verdict: bit i
	// is set if the hold of charge i had ended before.
	Settle Operation = "settle"
	// Renew prolongs the holds of the charges. Verdict: as of Settle.
	Renew Operation = "renew"
	// Adjust corrects what is used of a Quota, and raises its limit for a time, once for each id.
	// Verdict: 1, or why nothing changed.
	Adjust Operation = "adjust"
	// AtLeast charges what is missing until that many units of a Quota are used. Verdict: the units
	// that were missing.
	AtLeast Operation = "atleast"
	// Ask asks whether the key of a Quota is seeded. Verdict: 0 if it is, otherwise minus the
	// present time.
	Ask Operation = "ask"
)

// Corrects reports whether the reply to the operation is the verdict alone.
func (o Operation) Corrects() bool {
	switch o {
	case Give, Settle, Renew, Adjust, AtLeast, Ask:
		return true
	}
	return false
}

// Seeds reports whether the operation waits for keys that are to be seeded first.
func (o Operation) Seeds() bool { return !o.Corrects() || o == Adjust }

// Adjusts reports whether the operation is for the one charge on a Quota.
func (o Operation) Adjusts() bool {
	switch o {
	case Adjust, AtLeast, Ask:
		return true
	}
	return false
}

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
	// Kept is nil if there is nothing beside the state, as of most charges: a store clears 16 of
	// them for each decision.
	*Kept
}

// Kept is what is kept beside the state of a charge, and what a request does with that.
type Kept struct {
	// Holds are those of the state. They count if HoldFor is set.
	Holds *Holds
	// HoldFor is how long units of the charge are held, in microseconds.
	HoldFor    int64
	Correction *Correction // of Settle and Renew
	// Adjustments are those of the state. They count if Adjusts is set.
	Adjustments *Adjustments
	Adjusts     bool
	Seeds       bool        // the key is to be seeded before it is charged
	Adjustment  *Adjustment // of Adjust and AtLeast; empty for Ask
	// Raised is by how much the adjustments raise the limit. Run sets it, and raises Limit.
	Raised int64
	// Gone reports that nothing counts any more since holds have ended. The State is a new one
	// then.
	Gone bool
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

// Run decides one request at now and appends the reply: the verdict, then each charge's reply,
// except for Give, Settle and Renew. The charges have different states. Bit i of changed is set if
// charge i changed its State. AtMost sets each charge's cost to what was charged. At first Run
// raises the limits, and refunds the holds that have ended. If a key is to be seeded before, the
// reply is Unseeded and nothing changes.
func Run(now int64, terms Terms, charges []Charge, reply []int64) (_ []int64, changed uint32) {
	unseeded := false
	for i := range charges {
		if c := &charges[i]; c.Kept != nil && c.Adjusts {
			unseeded = c.raise(now) || unseeded
		}
	}
	if unseeded && terms.Operation.Seeds() {
		return append(reply, Unseeded), 0
	}
	for i := range charges {
		if c := &charges[i]; c.Kept != nil && c.HoldFor > 0 && c.expire(now) {
			changed |= 1 << i
		}
	}
	head := len(reply)
	reply = append(reply, 0)
	switch terms.Operation {
	case Settle:
		verdict, settled := settle(now, terms, charges)
		reply[head] = verdict
		return reply, changed | settled
	case Renew:
		reply[head] = renew(now, terms, charges)
		return reply, changed
	case Adjust, AtLeast, Ask:
		verdict, adjusted := charges[0].adjust(now, terms.Operation)
		if reply[head] = verdict; adjusted {
			changed |= 1
		}
		return reply, changed
	}
	var (
		verdict  int64
		violated uint32
		op       = terms.Operation
		admitted = op != Peek
	)
	for i := range charges {
		c := &charges[i]
		if c.Limit.Find(c.State, now) {
			changed |= 1 << i
		}
		if op == Give {
			if c.Limit.Give(c.State, c.Cost, c.Receipt) {
				verdict++
				changed |= 1 << i
			}
			continue
		}
		reply = c.Limit.Reply(c.State, c.Cost, reply)
		if op != AtMost && op != Force && !c.Limit.Fits(c.State, c.Cost, terms) {
			violated |= 1 << i
			verdict |= 1 << i
			admitted = admitted && c.Shadow
		}
	}
	if op == AtMost {
		verdict = largestMultiple(charges, terms.Bound)
		for i := range charges {
			if c := &charges[i]; c.Shadow && !c.Limit.Fits(c.State, c.Cost, terms) {
				violated |= 1 << i
			}
		}
	}
	if admitted && op != Give {
		at := head
		for i := range charges {
			c := &charges[i]
			at += c.Limit.Fields()
			if violated&(1<<i) == 0 && c.Cost != (Cost{}) {
				receipt := c.Limit.Commit(c.State, c.Cost, terms)
				if c.Kept != nil {
					c.keep(now, terms.Hold, receipt)
				}
				reply[at] = receipt
				changed |= 1 << i
			}
		}
	}
	reply[head] = verdict
	if op != Give {
		for i := range charges {
			if c := &charges[i]; c.Kept != nil && c.Adjusts {
				reply = append(reply, charges[i].Raised)
			}
		}
	}
	return reply, changed
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
