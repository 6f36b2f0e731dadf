package algorithm

// Operation is what a request asks for. The zero value is Decide.
type Operation uint8

// The operations of a request. The reply to those from Give on is the verdict alone. Those from Adjust on
// are for the one charge on a quota.
const (
	// Decide commits all charges of the request, or none. Verdict: bit i is set if charge i is
	// violated.
	Decide Operation = iota
	// Peek answers as Decide does and charges nothing.
	Peek
	// Reserve is Decide, but charges may take effect later, by at most the bound in microseconds.
	Reserve
	// AtMost charges every cost n times, for the largest n up to the bound that fits. Verdict: n.
	AtMost
	// Force commits all charges, whether they fit or not, up to each algorithm's debt. Verdict: 0.
	Force
	// Give refunds the cost of each charge by its receipt, as far as it still counts. Verdict: the
	// number of charges that got a refund.
	Give
	// Settle ends the holds of the charges and makes each what its Correction says. Verdict: bit i
	// is set if the hold of charge i had ended before.
	Settle
	// Renew prolongs the holds of the charges. Verdict: as of Settle.
	Renew
	// Adjust corrects what is used of a quota, and raises its limit for a time, once for each id.
	// Verdict: 1, or why nothing changed.
	Adjust
	// AtLeast charges what is missing until that many units of a quota are used. Verdict: the units
	// that were missing.
	AtLeast
	// Ask asks whether the key of a quota is seeded. Verdict: 0 if it is, otherwise minus the
	// present time.
	Ask
)

var operations = [...]string{
	"decide", "peek", "reserve", "atmost", "force", "give", "settle", "renew", "adjust", "atleast", "ask",
}

// String returns the name of the operation in the scripts.
func (o Operation) String() string { return operations[o] }

// Corrects reports whether the reply to the operation is the verdict alone.
func (o Operation) Corrects() bool { return o >= Give }

// Seeds reports whether the operation waits for keys that are to be seeded first.
func (o Operation) Seeds() bool { return !o.Corrects() || o == Adjust }

// Adjusts reports whether the operation is for the one charge on a quota.
func (o Operation) Adjusts() bool { return o >= Adjust }

// Terms are the operation of a request and its options.
type Terms struct {
	Op       Operation
	Bound    int64 // AtMost: how often; Reserve: microseconds
	Receipts bool  // the charges may be refunded
	// Hold is the id under which the charges with a HoldFor are held, settled or renewed. If it is
	// empty they are not held.
	Hold string
}

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

// AnyReceipt is the receipt by which Give takes units from a quota whoever spent them.
// It is not -1, which is no receipt.
const AnyReceipt = -2

// Unseeded is the reply to a request with a key that is to be seeded first, and a verdict of
// Adjust.
const Unseeded = -2

// The verdicts of Adjust that change nothing.
const (
	AdjustedBefore = 0  // the id is known
	RaisedTooFar   = -3 // all raises exceed MaxCount
	RaiseEnded     = -4 // the end of the raise has passed
)
