package outbound

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/outbound/internal/signal"
)

// lower lowers what is left under the rules to what a response tells to be left, where that is
// less. For strained requests it is less by the reserve, and may be less than nothing.
//
// Where nothing is left until the limit is full again, a core.TokenBucket owes what it fills until
// then.
//
// It spends units until a limit that is lower by what is left is reached, in one step. So of any
// number of responses, at any number of replicas, the lowest count holds, and none counts twice.
func (p *pass) lower(told []signal.Remaining) {
	for _, r := range told {
		i := p.ruleOf(&r)
		if i < 0 || r.Remaining < 0 || p.margins[i].left < 0 {
			continue
		}
		left := r.Remaining
		if s, ok := sharedOf(&r, p.x.charged[i].rule.Policy); ok {
			if p.strain(i, left, s); p.x.strained() {
				left -= s.reserve
			}
		}
		if r.Remaining == 0 && !r.Refills {
			left = min(left, -fills(p.x.charged[i].rule.Policy.Algorithm(), r.Reset))
		}
		if left < p.margins[i].left {
			p.lowerTo(left, &p.x.charges[len(p.x.asks)+i], r.Remaining)
		}
	}
}

// lowerTo lowers what is left under the rule of a charge.
func (p *pass) lowerTo(left int64, charge *core.Charge, told int64) {
	c := *charge
	limit, most, ok := lowered(c.Policy.Algorithm(), left)
	if !ok {
		return
	}
	ctx := context.WithoutCancel(p.x.req.Context())
	c.Cost, c.Limit, c.Clamp = 1, limit, false
	n, _, err := p.x.t.cfg.Gate.SpendUpTo(ctx, most, c)
	if p.x.t.cfg.Observe != nil && (n > 0 || err != nil) {
		p.x.t.observe(ctx, &LowerEvent{
			Policy: c.Policy, Key: c.Key, Remaining: told, Spent: n, Err: err,
		})
	}
}

// fills returns how many units a bucket may owe so that it has less than one until a time. It is 0 for
// all other algorithms, because they owe nothing.
func fills(a core.Algorithm, until time.Duration) int64 {
	l, ok := a.(core.TokenBucket)
	if !ok || l.Rate <= 0 || until <= 0 {
		return 0
	}
	return max(0, int64(math.Ceil(float64(l.Rate)*until.Seconds()/l.Per.Seconds()))-1)
}

// ruleOf returns the index of the charged rule that counts what the response tells of, or -1. Of
// several it is the one with the longest window, because that is what others can have used up. If
// the response tells neither its window nor its limit, it is the one with the shortest that is as
// long as the reset, which stops requests for the least time.
func (p *pass) ruleOf(told *signal.Remaining) int {
	found, best := -1, time.Duration(0)
	for i, c := range p.x.charged {
		rule := c.rule.Policy
		if rule.Unit().String() != told.Unit || c.cost == 0 || rule.Shadow() ||
			!lowers(rule.Algorithm()) || exceeds(rule, told) {
			continue
		}
		_, window, _ := rule.Quota()
		better := window > best
		if told.Window == 0 && told.Limit == 0 && best >= told.Reset {
			better = window >= told.Reset && window < best
		}
		if found < 0 || better {
			found, best = i, window
		}
	}
	return found
}

// farther is how many times the window or the limit of a rule may be that of a response, so that
// they can be of one limit.
const farther = 2

// exceeds reports whether a rule is of a longer time than what a response tells. A count of a
// minute says nothing of a day, and would stop requests for that long. The upstream's window is at
// least as long as the reset. If the rule's is longer, their limits tell whether they are of one
// time. The burst of a bucket may be any part of a limit, so it must be the whole limit for that.
func exceeds(rule *core.Policy, told *signal.Remaining) bool {
	limit, window, _ := rule.Quota()
	switch {
	case told.Window > 0:
		return window > farther*told.Window
	case told.Limit == 0 || window <= farther*told.Reset:
		return false
	}
	if _, fills := rule.Algorithm().(core.TokenBucket); fills && told.Reset > 0 {
		return limit != told.Limit
	}
	return limit > farther*told.Limit
}

// lowers reports whether what is left under an algorithm can be lowered. What fills a
// core.LeakyBucket only delays requests, and two counters are cut to a lower limit.
func lowers(a core.Algorithm) bool {
	switch l := a.(type) {
	case core.TokenBucket, core.FixedWindow, core.Calendar, core.SlidingLog:
		return true
	case core.SlidingWindow:
		return l.Buckets > 0
	}
	return false
}

// lowered returns a limit that is reached when that much is left under an algorithm that lowers, and
// how many units reach it from none. Less than nothing is left only of a core.TokenBucket that
// refills, which owes it for a moment.
func lowered(a core.Algorithm, left int64) (lower core.Algorithm, most int64, ok bool) {
	if l, ok := a.(core.TokenBucket); ok && l.Rate > 0 {
		l.Burst -= left
		return l, l.Burst, l.Burst > 0
	}
	left = max(left, 0)
	switch l := a.(type) {
	case core.TokenBucket:
		l.Burst -= left
		return l, l.Burst, l.Burst > 0
	case core.FixedWindow:
		l.Limit -= left
		return l, l.Limit, l.Limit > 0
	case core.Calendar:
		l.Limit -= left
		return l, l.Limit, l.Limit > 0
	case core.SlidingWindow:
		l.Limit -= left
		return l, l.Limit, l.Limit > 0
	case core.SlidingLog:
		l.Windows = slices.Clone(l.Windows)
		w := &l.Windows[0]
		for i := range l.Windows {
			if l.Windows[i].Width > w.Width {
				w = &l.Windows[i]
			}
		}
		w.Limit -= left
		return l, w.Limit, w.Limit > 0
	}
	return nil, 0, false
}
