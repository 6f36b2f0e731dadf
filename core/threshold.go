package core

import (
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
)

// maxThresholds bounds PolicyConfig.Thresholds.
const maxThresholds = 8

// checkThresholds returns the fault of PolicyConfig.Thresholds. own is the limit of the policy, or
// nil. If keys have limits of their own, that may be one without state.
func checkThresholds(percents []int, own *limit) error {
	const field = "core: PolicyConfig.Thresholds"
	if len(percents) > maxThresholds {
		return fmt.Errorf("%s has %d entries: it must have at most %d",
			field, len(percents), maxThresholds)
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

// reached returns a bit for each threshold of the policy that so much of a limit reaches.
func (p *Policy) reached(used, limit int64) (bits uint8) {
	for i, percent := range p.thresholds {
		if used < limit && used*100 < int64(percent)*limit { // such a limit is at most 2·10^15
			break
		}
		bits |= 1 << i
	}
	return bits
}

// thresholds tells the observer of a Gate which keys have reached a threshold. A nil one does
// nothing.
type thresholds struct {
	gate  *Gate
	clock func() int64 // microseconds

	mu      sync.Mutex
	known   map[uint64]knownThresholds // by policy and state
	pending []claim
	working bool // a goroutine works on pending
}

const (
	maxKnownThresholds = 16_384 // states; a forgotten one costs a claim, which is denied
	maxClaims          = 4096   // pending; a later decision makes a claim that does not fit
)

// knownThresholds are the thresholds of a state that have been told in a period, or are to be.
type knownThresholds struct {
	bits  uint8
	limit int64
	start int64 // of the period; -1 if that is not known
	until int64 // by the clock, or 0: until another period is found
}

func newThresholds(g *Gate, clock func() int64) *thresholds {
	return &thresholds{gate: g, clock: clock, known: make(map[uint64]knownThresholds)}
}

// look claims the thresholds that a decision has found its keys at. The store was asked after
// start.
func (t *thresholds) look(p *inquiry, d *Decision, start time.Time) {
	if t == nil || p.op == algorithm.Peek {
		return
	}
	for i := range p.asked {
		policy := p.asked[i].Policy
		if len(policy.thresholds) == 0 || p.place[i] < 0 {
			continue
		}
		r := d.at(i)
		if !r.Known || r.Source != t.gate.source { // one process does not know what all have used
			continue
		}
		if bits := policy.reached(r.Used, r.Limit); bits != 0 {
			c := &p.wire[p.place[i]]
			if span, ok := algorithm.SpanOf(c.Limit, c.Reply); ok {
				t.add(c, r, bits, span, start)
			}
		}
	}
}

// add makes a claim of the thresholds that are not known.
func (t *thresholds) add(
	c *charge, r *Result, bits uint8, span algorithm.Span, start time.Time,
) {
	id := c.Hash ^ c.policy.hash
	t.mu.Lock()
	defer t.mu.Unlock()
	known, found := t.known[id]
	if known.limit != r.Limit || known.start != span.Start || known.until != 0 && t.clock() >= known.until {
		known = knownThresholds{limit: r.Limit, start: span.Start}
	}
	bits &^= known.bits
	if bits == 0 || len(t.pending) >= maxClaims {
		return
	}
	if span.Start < 0 && known.bits == 0 {
		// The store answered after start, so this is not after the end of the period. Clocks drift.
		known.until = t.clock() - time.Since(start).Microseconds() +
			min(span.Left, time.Hour.Microseconds())
	}
	if !found && len(t.known) >= maxKnownThresholds {
		clear(t.known)
	}
	known.bits |= bits
	t.known[id] = known
	t.pending = append(t.pending, claim{
		id: id, policy: c.policy, key: c.key, suffix: c.from.suffix, bits: bits,
		used: r.Used, limit: r.Limit, span: span, start: start,
	})
	if !t.working {
		t.working = true
		t.gate.tasks.Go(t.work)
	}
}

// work makes the pending claims.
func (t *thresholds) work() {
	for {
		t.mu.Lock()
		if len(t.pending) == 0 {
			t.pending, t.working = nil, false
			t.mu.Unlock()
			return
		}
		c := t.pending[0]
		t.pending = t.pending[1:]
		t.mu.Unlock()
		contested, err := c.tell(t.gate)
		switch {
		case err != nil:
			t.forget(c.id, err)
		case contested:
			t.retry(c.id)
		}
	}
}

// forget lets a later decision claim the thresholds of a state again. A Gate that is closed makes
// no other claims either while the store fails.
func (t *thresholds) forget(id uint64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, id)
	if err != nil && t.gate.tasks.Stopped() {
		t.pending = nil
	}
}

// retry lets a decision claim the thresholds again when the claims of other processes have ended.
func (t *thresholds) retry(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.known[id]; ok {
		known.until = t.clock() + claimLasts.Microseconds()
		t.known[id] = known
	}
}
