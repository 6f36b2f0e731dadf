package replay

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/accesslog"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/plans"
)

// Config configures a Replay.
type Config struct {
	// Plan is the limits that hold for every request: all of them allow it, or none spends.
	Plan plans.Plan
	// Keys are the parts of the keys on which limits count, outermost first, with commas between
	// them: ip, user, host, method, path or all. That of the empty name is for limits without one of
	// their own. An absent one is ip. A limit is not for a request that lacks a part.
	Keys map[string]string
	// Prefixes are the beginnings of the paths that limits are for. An absent one is for all.
	Prefixes map[string]string
	// MaxKeys bounds the keys in memory, as core.Config.MaxKeys.
	MaxKeys int
}

// Replay decides the requests of a log one after the other. It is not safe for concurrent use.
type Replay struct {
	gate    *core.Gate
	clock   *core.ManualClock
	rules   []*rule
	charges []core.Charge
	then    [][]*core.Policy // of each charge: what follows once it is spent
	now     int64            // microseconds
	report  Report
}

// New returns a Replay.
func New(cfg Config) (*Replay, error) {
	rules, skipped, err := newRules(&cfg)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	for _, one := range rules {
		n := 0
		for _, r := range rules {
			if !r.answer && strings.HasPrefix(one.prefix, r.prefix) {
				n++
			}
		}
		if n > core.MaxCharges {
			return nil, fmt.Errorf("replay: %d limits of the plan are for paths with the beginning %q: "+
				"a request may have %d", n, one.prefix, core.MaxCharges)
		}
	}
	r := &Replay{rules: rules, clock: new(core.ManualClock)}
	r.gate, err = core.NewMemory(core.Config{MaxKeys: cfg.MaxKeys, Clock: r.clock.Now})
	if err != nil {
		return nil, err
	}
	r.report = newReport(rules, skipped)
	return r, nil
}

// Decide decides one request. The clock never goes back: a request that is earlier than one before
// it is decided at the time of that one.
func (r *Replay) Decide(ctx context.Context, e *accesslog.Request) error {
	switch {
	case e.Time > r.now:
		r.clock.Advance(time.Duration(e.Time-r.now) * time.Microsecond)
		r.now = e.Time
	case e.Time < r.now:
		r.report.late(time.Duration(r.now-e.Time) * time.Microsecond)
	}
	r.charges, r.then = r.charges[:0], r.then[:0]
	for _, rule := range r.rules {
		if rule.answer {
			continue
		}
		if key, ok := rule.key(e); ok {
			r.charges = append(r.charges, core.Charge{Policy: rule.policy, Key: key})
			r.then = append(r.then, rule.then)
		}
	}
	if len(r.charges) == 0 {
		r.report.request(r.now)
		return nil
	}
	d, err := r.gate.Decide(ctx, r.charges...)
	for err == nil && r.follow(&d) {
		d, err = r.gate.Decide(ctx, r.charges...)
	}
	if err != nil {
		return fmt.Errorf("replay: line %d: %w", e.Line, err)
	}
	r.report.request(r.now)
	if !d.Allowed {
		r.report.refuse(&d, r.charges)
	}
	return nil
}

// follow replaces the charges that deny by those that follow once they are spent, and reports whether
// there are some.
func (r *Replay) follow(d *core.Decision) (again bool) {
	for i, result := range d.Results() {
		if !result.Allowed && len(r.then[i]) > 0 {
			r.charges[i].Policy = r.then[i][0]
			r.then[i] = r.then[i][1:]
			again = true
		}
	}
	return again
}

// Report returns what has become of the requests so far.
func (r *Replay) Report() *Report {
	for i, rule := range r.rules {
		r.report.Limits[i].Exempt = rule.exempt
	}
	r.report.sort()
	return &r.report
}

// Close releases the Gate.
func (r *Replay) Close(ctx context.Context) error { return r.gate.Close(ctx) }
