package nethttp

import (
	"iter"
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
)

// Denial is a policy that denies a request.
type Denial struct {
	core.Result
	// TooLarge reports whether the cost is above what the limit ever allows.
	TooLarge bool
}

// Denials iterates over the policies that deny the request.
func (a *Admission) Denials() iter.Seq[Denial] {
	return func(yield func(Denial) bool) {
		for i, r := range a.denials() {
			if !yield(Denial{r, tooLarge(r, a.charged[i].cost)}) {
				return
			}
		}
	}
}

// denials iterates over the indexes and results of the policies that deny the request.
func (a *Admission) denials() iter.Seq2[int, core.Result] {
	return func(yield func(int, core.Result) bool) {
		for i, r := range a.decision.Results() {
			if !r.Allowed && !r.Policy.Shadow() && !yield(i, r) {
				return
			}
		}
	}
}

// tooLarge reports whether the cost is above what the limit ever allows. A SlidingLog tells its
// longest window in Limit, and a shorter one may allow less: then all becomes available and is never
// enough. A raised limit tells nothing of this: the raise may end before that.
func tooLarge(r core.Result, cost int64) bool {
	return r.RetryAfter == core.Never && r.Limit > 0 &&
		(cost > r.Limit || r.Raised == 0 && r.ResetAfter != core.Never)
}

// Violated returns the names of the policies that deny the request, or the name of the cap that is
// full.
func (a *Admission) Violated() []string {
	if a.full != nil {
		if a.fullCap.Name == "" {
			return nil
		}
		return []string{a.fullCap.Name}
	}
	var names []string
	for d := range a.Denials() {
		names = append(names, d.Policy.Name())
	}
	return names
}

// blocks iterates over the BlockRules that refuse the request as one of a blocked client.
func (a *Admission) blocks() iter.Seq[*block] {
	return func(yield func(*block) bool) {
		if a.status != http.StatusTooManyRequests {
			return
		}
		for i := range a.denials() {
			if b := a.charged[i].by.block; b != nil && !yield(b) {
				return
			}
		}
	}
}

func (a *Admission) blocked() bool {
	for range a.blocks() {
		return true
	}
	return false
}

// hidesBlock reports whether a blocked client is not told for how long.
func (a *Admission) hidesBlock() bool {
	for b := range a.blocks() {
		if b.HideRetryAfter {
			return true
		}
	}
	return false
}

// RetryAfter returns the wait after which a refused request may pass, and core.Never if no wait
// helps. It returns false if nobody knows, and for a request that may go on. Retry-After tells the
// same wait in seconds.
func (a *Admission) RetryAfter() (wait time.Duration, ok bool) {
	switch {
	case a.busy > 0:
		return a.busy, true
	case a.handled, a.hidesBlock():
		return core.Never, true
	case a.status != http.StatusTooManyRequests && !a.overloaded:
		return 0, false
	case a.full != nil:
		return a.full.RetryAfter, true
	case a.decision.Len() == 0, a.overloaded && a.decision.Source != core.SourceClosed:
		return time.Second, true
	}
	return a.decision.RetryAfter(), true
}
