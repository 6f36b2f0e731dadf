package outbound

import (
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/outbound/internal/signal"
)

// denial is why a request has no room. The zero value says that it has lost what it had, and may
// ask again.
type denial struct {
	rank  rank
	on    lineKey
	rest  time.Duration // of what it waits on, or core.Never
	after time.Duration // until there may be room under all, or core.Never
	cause error         // why a failure mode decided, or nil
}

// rank is what kind of charge denies. The highest one names a denial, and of one rank the longest.
type rank uint8

const (
	byNothing  rank = iota
	byRule          // a rule without room
	byCooldown      // a key that cools
	bySpent         // a key that cools because it is spent
)

// rule returns the name of what denies.
func (n *denial) rule() string {
	if n.rank == bySpent {
		return spentName
	}
	return n.on.policy.Name()
}

// denial returns why a decision denies, where reservations could be for later by that time.
func (x *exchange) denial(d *core.Decision, later time.Duration) *denial {
	n := &denial{cause: d.Cause}
	for i, r := range d.Results() {
		n.add(x, i, r, later)
	}
	return n
}

// known returns the denial by cooldowns that this process remembers, or nil.
func (x *exchange) known() (n *denial) {
	for i := range x.asks {
		if r, ok := blocked(x.t.cfg.Gate, x.charges[i]); ok {
			if n == nil {
				n = new(denial)
			}
			n.add(x, i, r, 0)
		}
	}
	return n
}

// add adds the result of a charge. This process heeds the cooldowns that it learns of when Redis does
// not answer.
func (n *denial) add(x *exchange, i int, r core.Result, later time.Duration) {
	if r.Allowed || r.Policy.Shadow() {
		return
	}
	by := byRule
	on := lineKey{r.Policy, x.charges[i].Key}
	after := afterOf(r, later)
	if i < len(x.asks) {
		by = byCooldown
		if reasonOf(r) == int64(signal.Spent) {
			by = bySpent
		}
		if r.Source == core.SourceRedis {
			heed(x.t.cfg.Gate, r.Policy, on.key, r.RetryAfter, reasonOf(r))
		}
	}
	if by > n.rank || by == n.rank && after > n.rest {
		n.rank = by
		n.on = on
		n.rest = after
	}
	n.after = max(n.after, after)
}

// afterOf returns when a charge that denies may have room, where reservations could be for later by
// that time.
func afterOf(r core.Result, later time.Duration) time.Duration {
	switch r.Policy.Algorithm().(type) {
	case core.TokenBucket, core.LeakyBucket:
		if r.RetryAfter != core.Never && r.Source != core.SourceLocal && r.KeptAfter() == 0 {
			return r.RetryAfter + later
		}
	}
	return r.RetryAfter
}
