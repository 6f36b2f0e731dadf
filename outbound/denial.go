package outbound

import (
	"context"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/hub"
)

// denial is why a request has no room. The zero value says that it has lost what it had, and may
// ask again.
type denial struct {
	rule  string
	on    lineKey
	after time.Duration // until there may be room, or core.Never
	rest  time.Duration // of the cooldown that denies, if cools
	cools bool
	spent bool
	rank  int   // of what names it
	cause error // why a failure mode decided, or nil
}

// denial returns why a decision denies, where reservations could be for later by that time.
func (x *exchange) denial(d *core.Decision, later time.Duration) *denial {
	n := x.cooling(d, later)
	for i, r := range d.Results() {
		if i >= len(x.asks) && !r.Allowed && !r.Policy.Shadow() {
			n.add(&x.charges[i], 1, afterOf(r, later))
		}
	}
	return n
}

// cooling returns a denial by the cooldowns of a decision, also by those that a reservation would
// wait for. It is for nothing if there are none.
func (x *exchange) cooling(d *core.Decision, later time.Duration) *denial {
	n := &denial{cause: d.Cause}
	var rests [maxAsks]time.Duration
	some := false
	for i := range x.asks {
		r := d.At(i)
		if rests[i] = restOf(r); !r.Allowed {
			rests[i] = afterOf(r, later)
		}
		some = some || rests[i] > 0
	}
	if some {
		spent := x.t.cool.spentOf(context.WithoutCancel(x.req.Context()), x.asks, &rests, d)
		n.cool(x, &rests, &spent)
	}
	return n
}

// knownDenial returns the denial by cooldowns that this process knows, or nil.
func (x *exchange) knownDenial() *denial {
	if !x.t.cool.known.some.Load() {
		return nil
	}
	n := new(denial)
	var rests [maxAsks]time.Duration
	var spent [maxAsks]bool
	for i, key := range x.asks {
		rests[i], spent[i] = x.t.cool.known.rest(key)
	}
	if n.cool(x, &rests, &spent); !n.cools {
		return nil
	}
	return n
}

// cool adds cooldowns with these rests.
func (n *denial) cool(x *exchange, rests *[maxAsks]time.Duration, spent *[maxAsks]bool) {
	for i := range x.asks {
		switch {
		case rests[i] == 0:
		case spent[i]:
			n.add(&x.charges[i], 3, rests[i])
		default:
			n.add(&x.charges[i], 2, rests[i])
		}
	}
}

// add adds a charge that denies for that time. The highest rank names the denial: 3 for a key that
// is spent, 2 for one that cools, 1 for a rule without room. Of one rank it is the longest.
func (n *denial) add(c *core.Charge, rank int, after time.Duration) {
	longest := n.after
	if rank > 1 {
		longest = n.rest
	}
	if rank > n.rank || rank == n.rank && after > longest {
		n.rule, n.on, n.rank = c.Policy.Name(), lineKey{c.Policy, c.Key}, rank
		if n.cools, n.spent = rank > 1, rank > 2; n.cools {
			n.rest = after
		}
		if n.spent {
			n.rule = spentName
		}
	}
	n.after = max(n.after, after)
}

// afterOf returns when a charge that denies may have room, where reservations could be for later by
// that time.
func afterOf(r core.Result, later time.Duration) time.Duration {
	if r.RetryAfter != core.Never && defers(r) {
		return r.RetryAfter + later
	}
	return r.RetryAfter
}

// defers reports whether a Reserve could have reserved the charge for later.
func defers(r core.Result) bool {
	switch r.Policy.Algorithm().(type) {
	case core.TokenBucket, core.LeakyBucket:
		return r.Source != core.SourceLocal && keptAfter(r) == 0
	}
	return false
}

// keptAfter is hub.KeptAfter.
var keptAfter = hub.KeptAfter.(func(core.Result) time.Duration)
