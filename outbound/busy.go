package outbound

import (
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
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

	estimated bool // After is, so asking again soon may help
}

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

// busyFor returns the error of a request that has no room under a rule for that time.
func busyFor(rule string, after time.Duration) *BusyError {
	e := &BusyError{Rule: rule, After: after}
	if after != core.Never {
		e.At = time.Now().Add(after)
	}
	return e
}
