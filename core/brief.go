package core

// brief says whether the request can be answered in one number, which is 2 and the level that was found if there is room, and
// otherwise -2 less the level.
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
