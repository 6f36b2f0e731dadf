package outbound

import (
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/outbound/internal/signal"
)

// ErrBusy is wrapped by every BusyError.
var ErrBusy = errors.New("outbound: busy")

// BusyError is the error of a request that was not sent, because it would wait for longer than it
// may. It has spent nothing and holds no slot.
type BusyError struct {
	// Rule is what has no room: the name of a rule's policy or of the slot's semaphore, "cooldown", or
	// "spent".
	Rule string
	// After is the time from the error until the request may have room, and At is that time. After is
	// core.Never, and At is zero, if waiting does not help. For a slot it is an estimate.
	After time.Duration
	At    time.Time
	// Spent reports that the upstream has told that the account's money or quota is spent. After is
	// when it gives more, or when to ask it again.
	Spent bool
	// Cause is why the request could not wait, or why a failure mode decided: the error of a context
	// whose deadline is too early, or that of Redis. Otherwise it is nil.
	Cause error

	rank rank
	on   lineKey
	rest time.Duration // of what it waits on, or core.Never
}

// rank is what denies a request. The highest one names the error, and of one rank the longest.
type rank uint8

const (
	byNothing  rank = iota // the request has lost what it had, and may ask again
	byRule                 // a rule without room
	byCooldown             // a key that cools
	bySpent                // a key that cools because it is spent
	bySlot                 // no slot, or no one that gives any: After is an estimate
)

func (e *BusyError) Error() string {
	text := fmt.Sprintf("%v: no room under %s", ErrBusy, e.Rule)
	if e.Spent {
		text = fmt.Sprintf("%v: the account is spent", ErrBusy)
	}
	if e.After == core.Never {
		return text + ", and waiting does not help"
	}
	text += fmt.Sprintf(" for %v", e.After)
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns ErrBusy and the Cause.
func (e *BusyError) Unwrap() []error {
	if e.Cause == nil {
		return []error{ErrBusy}
	}
	return []error{ErrBusy, e.Cause}
}

// busy completes the error of a request that would have to wait for too long.
func (x *delivery) busy(e *BusyError) *BusyError {
	if e.After != core.Never {
		e.At = time.Now().Add(e.After)
		if e.Cause == nil && !e.Spent {
			e.Cause = x.cause
		}
	}
	return e
}

// denial returns why a decision denies, where reservations could be for later by that time.
func (x *delivery) denial(d *core.Decision, later time.Duration) *BusyError {
	e := &BusyError{Cause: d.Cause}
	for i, r := range d.Results() {
		if r.Allowed || r.Policy.Shadow() {
			continue
		}
		n := &BusyError{
			Rule: r.Policy.Name(), Cause: d.Cause,
			rank: byRule, on: lineKey{r.Policy, x.charges[i].Key, x.yielding()}, rest: r.RetryAfter,
		}
		switch r.Policy.Algorithm().(type) {
		case core.TokenBucket, core.LeakyBucket:
			if r.RetryAfter != core.Never && r.Source != core.SourceLocal && r.KeptAfter() == 0 {
				n.rest += later
			}
		}
		decided := r.Source != core.SourceClosed && r.Source != core.SourceOverload
		if i >= len(x.ruled) && decided { // a failure mode does not know that the key cools
			n.rank = byCooldown
			if n.Spent = inside.Reason(r) == int64(signal.Spent); n.Spent {
				n.rank = bySpent
				n.Rule = spentName
			}
		}
		n.After = max(e.After, n.rest)
		if n.rank > e.rank || n.rank == e.rank && n.rest > e.rest {
			e = n
		}
		e.After = n.After
	}
	return e
}
