package core

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/enum"
	"github.com/headgate/headgate/internal/request"
)

// FailureMode says who decides on a policy while Redis does not answer. If it is this process that
// asks for more than it can send, Local denies too; see ErrOverloaded.
type FailureMode uint8

const (
	// FailLocal lets this process decide alone, with its share of the limit: the limit divided by
	// Config.Replicas. What it spends is kept for the next outage until the limit gives it back, and
	// is not carried to Redis. A cost above the share is denied, with a wait of a second.
	FailLocal FailureMode = iota
	// FailOpen abstains: the policy allows everything.
	FailOpen
	// FailClosed denies everything, for operations that must never run uncounted.
	FailClosed
)

var failureModes = [...]string{"local", "open", "closed"}

// String returns the mode in one lower-case word.
func (m FailureMode) String() string { return enum.Name(failureModes[:], int(m)) }

// closedRetry is the wait of a denial by a failure mode: nobody knows when Redis is back.
const closedRetry = time.Second

// fail lets the failure modes of the unanswered charges decide whether they admit the request too. A
// request that was denied already spends nothing here either.
func (g *Gate) fail(ctx context.Context, p *inquiry) {
	whole := &p.whole[0]
	terms := algorithm.Terms{Op: p.op, Bound: whole.Bound, Receipts: whole.Receipts}
	local := request.Request{Terms: terms}
	for i := range p.wire {
		c := &p.wire[i]
		if c.answered() {
			continue
		}
		mode := c.mode(p.cause)
		if c.failed = mode != FailLocal; c.failed {
			p.admitted = p.admitted && mode == FailOpen
			continue
		}
		c.local = true
		c.whole = c.Limit.Capacity()
		c.Kind = c.Bare()
		c.raised = 0
		if g.cfg.Replicas > 1 {
			c.Limit = c.Limit.Share(int64(g.cfg.Replicas))
		}
		c.price(false)
		local.Charges = append(local.Charges, &c.Charge)
	}
	if len(local.Charges) == 0 {
		return
	}
	if !p.admitted {
		local.Op = algorithm.Peek
	}
	requests := []request.Request{local}
	_ = g.local.Decide(ctx, requests) // memory does not fail
	p.admitted = p.admitted && requests[0].Admitted()
	if p.admitted && p.op == algorithm.AtMost {
		whole.Bound = requests[0].Verdict
	}
}

// mode says who decides on a charge that Redis did not answer. A shadow never denies. Nothing goes
// on without a Redis that is misconfigured. No process decides alone while Redis counts for the
// others.
func (c *charge) mode(cause error) FailureMode {
	switch {
	case c.Shadow:
		return FailOpen
	case errors.Is(cause, ErrMisconfigured):
		return FailClosed
	case errors.Is(cause, ErrOverloaded) && c.from.policy.cfg.OnFailure == FailLocal:
		return FailClosed
	}
	return c.from.policy.cfg.OnFailure
}

// denier is the source of a denial without Redis.
func denier(cause error) Source {
	if errors.Is(cause, ErrOverloaded) {
		return SourceOverload
	}
	return SourceClosed
}
