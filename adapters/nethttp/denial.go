package nethttp

import (
	"iter"
	"time"

	"github.com/headgate/headgate/core"
)

// Denial is a policy that denies a request.
type Denial struct {
	core.Result
	// TooLarge reports whether the cost is above what the limit ever allows.
	TooLarge bool
	// DeniesAll reports whether the limit is a core.DenyAll.
	DeniesAll bool
	// Running reports whether running requests hold what the request needs: once they have ended it
	// may pass. RetryAfter is an estimate then.
	Running bool
}

// Denials iterates over the policies that deny the request.
func (a *Admission) Denials() iter.Seq[Denial] {
	return func(yield func(Denial) bool) {
		for _, d := range a.denials() {
			if !yield(d) {
				return
			}
		}
	}
}

// denials is Denials with the index of each result. Of policies that follow each other, the last one
// tells the shortest wait of all.
func (a *Admission) denials() iter.Seq2[int, Denial] {
	return func(yield func(int, Denial) bool) {
		for i, r := range a.decision.Results() {
			if sooner := a.sooner[i]; sooner > 0 {
				r.RetryAfter = min(r.RetryAfter, sooner)
			}
			if !r.Allowed && !r.Policy.Shadow() && !yield(i, denialOf(r, &a.charged[i])) {
				return
			}
		}
	}
}

// denialOf returns the denial of a charge. A cost above the limit is too large, unless it is clamped. A
// SlidingLog tells its longest window in Limit, and a shorter one may allow less: then all becomes
// available and is never enough. A raised limit tells nothing of this: the raise may end before that. A
// remembered denial may not know when all is available, but Window tells whether anything comes back.
func denialOf(r core.Result, c *charged) Denial {
	d := Denial{Result: r, Running: r.KeptAfter() > 0}
	if r.RetryAfter != core.Never {
		return d
	}
	back := r.ResetAfter
	if !r.Known {
		back = r.Window
	}
	d.DeniesAll = r.Limit == 0
	d.TooLarge = r.Limit > 0 && (c.cost > r.Limit || r.Raised == 0 && back != core.Never) &&
		(c.by.block != nil || !c.by.rule.Clamp)
	return d
}

// denialKind is why policies deny a request: of several reasons, the last one here. The Gate may
// answer a denial that no wait lifts without looking for blocks, so these come after them.
type denialKind uint8

const (
	notDenied denialKind = iota // no policy denies it, or nobody knows
	exhausted                   // a quota is exhausted
	blocked                     // the client is blocked
	tooLarge                    // a cost is above what a limit ever allows
	deniesAll                   // a limit is a core.DenyAll
)

// kind returns why policies deny the request.
func (a *Admission) kind() denialKind {
	kind := exhausted
	for i, d := range a.denials() {
		switch {
		case d.DeniesAll:
			kind = deniesAll
		case a.charged[i].by.block != nil:
			kind = max(kind, blocked)
		case d.TooLarge:
			kind = max(kind, tooLarge)
		}
	}
	return kind
}

// Violated returns the names of the policies that deny the request, or the name of the cap that is
// full.
func (a *Admission) Violated() []string {
	if a.Full() != nil {
		if a.fullCap().Name == "" {
			return nil
		}
		return []string{a.fullCap().Name}
	}
	var names []string
	for _, d := range a.denials() {
		names = append(names, d.Policy.Name())
	}
	return names
}

// hidesBlock reports whether a blocked client is not told for how long.
func (a *Admission) hidesBlock() bool {
	for i := range a.denials() {
		if b := a.charged[i].by.block; a.denied == blocked && b != nil && b.HideRetryAfter {
			return true
		}
	}
	return false
}

// RetryAfter returns the wait after which a refused request may pass, and core.Never if no wait
// helps. It returns false if nobody knows, and for a request that may go on. Retry-After tells the
// same wait in seconds, if it is at most Config.LongestWait.
func (a *Admission) RetryAfter() (wait time.Duration, ok bool) {
	switch e := &a.earlier; {
	case e.busy > 0:
		return e.busy, true
	case e.handled, a.hidesBlock():
		return core.Never, true
	case a.Full() != nil:
		return a.Full().RetryAfter, true
	case a.denied == notDenied && !a.overloaded:
		return 0, false
	case a.decision.Len() == 0, a.overloaded && a.decision.Source != core.SourceClosed:
		return time.Second, true
	}
	if a.sooner == nil {
		return a.decision.RetryAfter(), true
	}
	for _, d := range a.denials() {
		wait = max(wait, d.RetryAfter)
	}
	return wait, true
}
