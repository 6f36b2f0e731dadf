package nethttp

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/core"
)

// LimitHeaders are three headers that state one policy: its limit, what remains of it, and when the
// whole limit is available again. It is for a Dialect.
type LimitHeaders struct {
	// Units are the units of the policies that the headers may state. Nil is every unit.
	Units []core.Unit
	// Limit, Remaining and Reset are the names of the headers.
	Limit, Remaining, Reset string
}

// Write states the policy of these units that denies for longest, or, if none of them denies, the
// one with the smallest part of its limit left. It sets nothing if there is none, or if an outer
// Guard has stated a policy of which a smaller part is left.
//
// reset formats when the whole limit is available. The header is absent if that time never comes,
// and if reset returns "".
func (l *LimitHeaders) Write(h http.Header, a *Admission, reset func(r core.Result) string) {
	r, ok := l.tightest(a)
	if !ok || r.Allowed && l.tighter(h, r) {
		return
	}
	h.Set(l.Limit, integer(r.Limit))
	h.Set(l.Remaining, integer(r.Remaining))
	h.Del(l.Reset)
	if r.ResetAfter == core.Never {
		return
	}
	if text := reset(r); text != "" {
		h.Set(l.Reset, text)
	}
}

// ResetAt returns the time at which the whole limit of a result is available, rounded up to
// seconds. For a FixedWindow and a Calendar that is the end of a window by the clock of Redis, or of
// the Gate in memory. Otherwise it is ResetAfter from now. It is for a Dialect that states times.
func ResetAt(r core.Result) time.Time {
	at := time.Now().Add(r.ResetAfter)
	if end, ok := r.ResetTime(); ok {
		at = end
	}
	if whole := at.Truncate(time.Second); whole.Before(at) {
		return whole.Add(time.Second)
	}
	return at
}

// tighter reports whether h states a limit of which a smaller part is left.
func (l *LimitHeaders) tighter(h http.Header, r core.Result) bool {
	stated := h.Get(l.Limit)
	if stated == "" {
		return false
	}
	limit, err := strconv.ParseInt(stated, 10, 64)
	remaining, err2 := strconv.ParseInt(h.Get(l.Remaining), 10, 64)
	return err == nil && err2 == nil && limit > 0 &&
		float64(remaining)/float64(limit) < partLeft(r)
}

// partLeft returns the part of a limit that is left.
func partLeft(r core.Result) float64 { return float64(r.Remaining) / float64(r.Limit) }

// tightest returns the result that the headers state, if there is one. Beside a denial they state no
// policy that admits the request. Headers of every unit have no others beside them that could state what
// denies, so that holds for them whatever refuses the request.
func (l *LimitHeaders) tightest(a *Admission) (best core.Result, ok bool) {
	denied := l.Units == nil && !a.decision.Allowed
	for i, r := range a.decision.Results() {
		if !l.covers(a, i, r) {
			continue
		}
		denied = denied || !r.Allowed
		stated := r.Known && r.Limit > 0 && r.Source != core.SourceLocal
		if stated && (!ok || tighterThan(best, r)) {
			best, ok = r, true
		}
	}
	return best, ok && !(denied && best.Allowed)
}

// tighterThan reports whether r limits the client more than other does.
func tighterThan(other, r core.Result) bool {
	if r.Allowed && other.Allowed {
		return partLeft(r) < partLeft(other)
	}
	return !r.Allowed && (other.Allowed || r.RetryAfter > other.RetryAfter)
}

// covers reports whether the headers may state result i.
func (l *LimitHeaders) covers(a *Admission, i int, r core.Result) bool {
	return a.charged[i].by.block == nil && !r.Policy.Shadow() &&
		(l.Units == nil || slices.Contains(l.Units, r.Policy.Unit()))
}
