package core

// operationSpend is algorithm.Decide, for who gives nothing back: its reply may be one number.
const operationSpend = "spend"

// brief says whether the request can be answered so.
func (r *request) brief() bool { return r.merges && len(r.charges) == 1 }

// isBrief tells such a number from a verdict on one charge, and from the -1 of another period.
func isBrief(n int64) bool { return n < -1 || n > 1 }

// unfold is the reply to the request that the number stands for.
func (r *request) unfold(n int64) []int64 {
	r.full = [...]int64{0, n - 2, 0, 1}
	if n < 0 {
		r.full = [...]int64{1, -2 - n, 0, 0}
	}
	return r.full[:]
}
