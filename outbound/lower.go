package outbound

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/outbound/internal/signal"
)

// lower lowers what is left under the rules to what a response tells to be left of their limits,
// where that is less. Where nothing is left until a reset, requests under the rule wait for that.
//
// It raises what is used until no more is left, in one step. So of any number of responses, at any number
// of replicas, the lowest count holds, and none counts twice.
func (p *pass) lower(told []signal.Remaining, status int) {
	for i, rule := range p.x.ruled {
		left, wait := rule.left, time.Duration(0)
		for _, r := range told {
			switch {
			case rule.Limit != r.Name:
			case r.Remaining == 0 && r.Reset > 0 && !r.Refills:
				wait = max(wait, r.Reset)
			default:
				left = min(left, r.Remaining)
			}
		}
		if wait > 0 {
			p.x.coolKey(rule.cooldown, status, signal.Signal{Reason: signal.Slow, Wait: wait}, p.sent)
		}
		if left < rule.left {
			p.x.lowerTo(left, rule.limit-left, p.x.charges[i])
		}
	}
}

// lowerTo spends units of a charge's rule until that many are used and left units are left.
func (x *delivery) lowerTo(left, used int64, c core.Charge) {
	ctx := context.WithoutCancel(x.req.Context())
	n, err := int64(0), error(nil)
	if inside.IsQuota(c.Policy.Algorithm()) { // under a lower limit, thresholds and raises would be others
		n, err = x.t.cfg.Gate.RaiseUsed(ctx, c, used, time.Time{})
	} else if c.Limit = lowered(c.Policy.Algorithm(), left); c.Limit != nil {
		c.Cost = 1
		n, _, err = x.t.cfg.Gate.SpendUpTo(ctx, used, c)
	}
	if x.t.cfg.Observe != nil && (n > 0 || err != nil) {
		x.t.cfg.Observe(ctx, &LowerEvent{Policy: c.Policy, Key: c.Key, Remaining: left, Spent: n, Err: err})
	}
}

// lowered returns a limit that is reached when that much is left under an algorithm that is no quota. It
// returns nil for one that cannot be lowered: what fills a core.LeakyBucket only delays requests, and two
// counters are cut to a lower limit.
func lowered(a core.Algorithm, left int64) core.Algorithm {
	switch l := a.(type) {
	case core.TokenBucket:
		l.Burst -= left
		return l
	case core.FixedWindow:
		l.Limit -= left
		return l
	case core.SlidingWindow:
		if l.Limit -= left; l.Buckets > 0 {
			return l
		}
	case core.SlidingLog:
		l.Windows = slices.Clone(l.Windows)
		longest := &l.Windows[0]
		for i := range l.Windows {
			if l.Windows[i].Width > longest.Width {
				longest = &l.Windows[i]
			}
		}
		longest.Limit -= left
		return l
	}
	return nil
}
