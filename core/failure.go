package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// FailureMode says who decides on a policy while Redis does not answer.
type FailureMode uint8

const (
	// Local lets this process decide alone, with its share of the limit: the limit divided by Config.Replicas. It
	// starts with an unspent share, and what it spends is not carried to Redis afterwards. A cost above the share is
	// denied, with a wait of a second.
	Local FailureMode = iota
	// Open abstains: the policy allows everything.
	Open
	// Closed denies everything, for what must not be had without being counted.
	Closed
)

// closedRetry is the wait that a Closed policy names: nobody knows when Redis is back.
const closedRetry = time.Second

// outages are the replies of a Redis that cannot decide now and may later: starting, failing over, full, busy.
var outages = []string{
	"LOADING", "CLUSTERDOWN", "READONLY", "MASTERDOWN", "NOREPLICAS", "TRYAGAIN", "MOVED", "ASK", "BUSY", "OOM",
	"MISCONF", "NOTBUSY", "UNBLOCKED", "ERR max number of clients", "max number of clients",
}

// misconfigured says whether an error of a call to Redis will not pass by itself. Everything but a clear reply of
// Redis may: time-outs, refused and broken connections, an exhausted pool.
func misconfigured(err error) bool {
	if errors.Is(err, errReply) {
		return true
	}
	var reply redis.Error
	if !errors.As(err, &reply) || errors.Is(err, redis.TxFailedErr) {
		return false
	}
	text := reply.Error()
	for _, prefix := range outages {
		// A script reports the errors of its calls behind words of its own.
		if strings.HasPrefix(text, prefix) || strings.Contains(text, "-"+prefix+" ") {
			return false
		}
	}
	return true
}

// fail lets the failure modes of the unanswered charges decide, and says whether they admit too. What is
// denied already spends nothing here either.
func (g *Gate) fail(ctx context.Context, p *plan, d *Decision, cause error, admitted bool) bool {
	d.Cause, d.Source = cause, SourceOpen
	refused := errors.Is(cause, ErrMisconfigured)
	locals := []request{{op: p.op, bound: p.bound, receipts: p.keeps}}
	local := &locals[0]
	var at []int
	for i := range p.wire {
		c := &p.wire[i]
		if c.answered {
			continue
		}
		switch mode := c.mode(refused); mode {
		case Closed:
			d.Source, admitted = SourceClosed, false
		case Local: // between Open and Closed
			d.Source = max(d.Source, SourceLocal)
			own := *c
			own.local, own.whole = true, c.limit.Capacity()
			if g.replicas > 1 {
				own.limit = c.limit.Share(int64(g.replicas)) // for this process alone
			}
			own.cost = own.limit.Cost(c.units)
			local.charges = append(local.charges, own)
			at = append(at, i)
			continue
		}
		c.failed = true
	}
	if len(at) == 0 {
		return admitted
	}
	if !admitted {
		local.op = algorithmPeek
	}
	_ = g.local.decide(ctx, locals) // memory does not fail
	for j, i := range at {
		p.wire[i] = local.charges[j]
	}
	if !admitted || !local.admitted() {
		return false
	}
	if p.op == algorithmAtMost {
		p.bound = local.verdict
	}
	return true
}

// mode is who decides on a charge that Redis did not answer. Shadows never stand in the way, and a Redis that is
// misconfigured is nothing to go on without.
func (c *charge) mode(refused bool) FailureMode {
	switch {
	case c.policy.shadow:
		return Open
	case refused:
		return Closed
	}
	return c.policy.onFailure
}

// ask sends requests to the store, in one round trip. An outage is an error that wraps neither the caller's own context's error
// nor ErrMisconfigured.
func (g *Gate) ask(ctx, caller context.Context, requests []request) (err error) {
	if g.circuit == nil {
		return g.store.decide(ctx, requests)
	}
	if err := g.circuit.enter(); err != nil {
		return err
	}
	if keys := corrected(requests); len(keys) > 0 {
		defer g.cache.lifting(keys...)()
	}
	err = errPanicked
	defer g.judge(caller, patient(ctx), &err)
	err = g.store.decide(ctx, requests)
	return err
}

// judge is deferred before a call that the circuit let through. It tells the circuit what came of that, and classes the error.
// That is errPanicked until there is another.
func (g *Gate) judge(caller context.Context, patient bool, err *error) {
	switch {
	case *err == nil:
		g.circuit.leave(false)
		return
	case *err == errPanicked: // a hook of the client panics
		g.circuit.abandon()
		return
	case errors.Is(*err, errPeriod):
		g.circuit.leave(false)
	case errors.Is(caller.Err(), context.Canceled):
		g.circuit.abandon()
		*err = fmt.Errorf("core: %w", caller.Err())
		return
	case misconfigured(*err):
		g.circuit.leave(false)
		*err = fmt.Errorf("%w: %w", ErrMisconfigured, *err)
		return
	case errors.As(*err, new(follower)):
		g.circuit.abandon()
	case patient:
		g.circuit.leave(true)
	default:
		g.circuit.doubt()
	}
	if over := ended(caller); over != nil {
		*err = fmt.Errorf("core: %w", over)
		return
	}
	*err = fmt.Errorf("core: redis: %w", *err)
}
