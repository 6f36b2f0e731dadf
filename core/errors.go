package core

import "errors"

var (
	// ErrCharge is wrapped by the errors of charges that cannot be decided: no charges or too many,
	// a nil policy, a negative cost, two policies of one name.
	ErrCharge = errors.New("core: unusable charge")

	// ErrDenied is wrapped by the errors of Limiter.Wait and WaitN when they do not wait.
	ErrDenied = errors.New("core: denied")

	// ErrMisconfigured is wrapped by the errors of a Redis that rejects what a Gate needs: a wrong
	// password, a missing permission or command, a value of something else under a Gate's key, keys
	// of several hash slots, a script error. Waiting does not help. Any other answer is an outage.
	ErrMisconfigured = errors.New("core: redis is misconfigured")

	// ErrCircuitOpen is the Cause of a decision without Redis, because Redis failed just before. It
	// was not asked, so nothing is spent there.
	ErrCircuitOpen = errors.New("core: redis failed just before and is not asked again yet")

	// ErrOverloaded is the Cause of a decision that this process could not ask Redis for in time,
	// or whose answer it could not read in time, although Redis answers. It is an error of Acquire.
	ErrOverloaded = errors.New("core: redis answers, but not what this process asks in time")

	// ErrClosed is returned by a Gate that is closed.
	ErrClosed = errors.New("core: the gate is closed")
)
