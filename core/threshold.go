package core

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/request"
	"github.com/headgate/headgate/internal/threshold"
)

// checkThresholds returns the fault of PolicyConfig.Thresholds. own is the limit of the policy, or
// nil. If keys have limits of their own, that may be one without state.
func checkThresholds(percents []int, own *limit) error {
	const field = "core: PolicyConfig.Thresholds"
	if len(percents) > threshold.Most {
		return fmt.Errorf("%s has %d entries: it must have at most %d",
			field, len(percents), threshold.Most)
	}
	for i, percent := range percents {
		switch {
		case percent < 1 || percent > 100:
			return fmt.Errorf("%s[%d] is %d: it must be between 1 and 100", field, i, percent)
		case i > 0 && percent <= percents[i-1]:
			return fmt.Errorf("%s[%d] is %d, after %d: they must ascend",
				field, i, percent, percents[i-1])
		}
	}
	if len(percents) == 0 || own == nil {
		return nil
	}
	current := own.current()
	counts := current == nil // the charges have limits of their own
	if current != nil {
		_, counts = algorithm.SpanOf(current, make([]int64, current.Fields()))
	}
	if !counts {
		return fmt.Errorf("%s is set: PolicyConfig.Algorithm must be a Calendar, a FixedWindow of at "+
			"least a minute without FromFirst, or a TokenBucket with Rate 0", field)
	}
	return nil
}

// watched is the key whose state a Gate watches, and its policy.
type watched struct {
	policy *Policy
	key    Key
}

// newWatch returns what tells the observer of the Gate which keys have reached a threshold.
func newWatch(g *Gate, clock func() int64) *threshold.Watch[watched] {
	return threshold.New(threshold.Config[watched]{
		Send: func(requests []request.Request) error {
			return breaker.Safely(func() error { return g.send(g.bound(context.Background()), requests) })
		},
		Tell: func(s *threshold.Sighting[watched], percent int) {
			g.tell(context.Background(), &ThresholdEvent{
				Policy: s.Owner.policy, Key: s.Owner.key, Percent: percent,
				Used: s.Used, Limit: s.Limit,
			})
		},
		Tasks: g.tasks, Clock: clock, Pause: g.cfg.Timeout,
	})
}

// watch shows the watch which keys a decision has found at their thresholds. The store was asked
// after start.
func (g *Gate) watch(p *inquiry, d *Decision, charges []Charge, start time.Time) {
	if p.op == algorithm.Peek || d.n == 0 {
		return
	}
	for i := range charges {
		policy := charges[i].Policy
		if len(policy.cfg.Thresholds) == 0 || p.place[i] < 0 {
			continue
		}
		r := d.at(i)
		if !r.Known || r.Source != g.source { // one process does not know what all have used
			continue
		}
		bits := threshold.Reached(policy.cfg.Thresholds, r.Used, r.Limit)
		c := &p.wire[p.place[i]]
		if span, ok := algorithm.SpanOf(c.Limit, c.Reply); ok && bits != 0 {
			g.thresholds.See(threshold.Sighting[watched]{
				Owner: watched{policy, c.key()}, ID: c.StateHash() ^ policy.hash,
				Percents: policy.cfg.Thresholds, Bits: bits,
				State: threshold.State{Key: c.Key, Suffix: c.Suffix},
				Used:  r.Used, Limit: r.Limit, Span: span, Asked: start,
			})
		}
	}
}
