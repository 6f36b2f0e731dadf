package core

import "errors"

var (
	// ErrCharge is wrapped by the errors of charges that cannot be decided: none or too many of them, a nil policy,
	// a negative cost, two policies of one name.
	ErrCharge = errors.New("core: unusable charge")

	// ErrSlotRequest is wrapped by the errors of what a semaphore cannot be asked for: no levels or too many, levels of
	// different outermost parts, a weight above its limit, an unknown priority, too much metadata.
	ErrSlotRequest = errors.New("core: unusable ask")

	// ErrDenied is wrapped by the errors of Limiter.Wait and WaitN when they do not wait.
	ErrDenied = errors.New("core: denied")

	// ErrMisconfigured is wrapped by the errors of a Redis that refuses what a Gate needs, which no waiting mends: a
	// wrong password, a missing permission, a foreign value under a Gate's key, a script error.
	ErrMisconfigured = errors.New("core: redis is misconfigured")

	// ErrCircuitOpen is the Cause of a decision made without asking Redis, which failed just before.
	ErrCircuitOpen = errors.New("core: redis failed just before and is not asked again yet")

	// ErrTooManyInFlight is the Cause of a decision made without asking Redis, because too many others wait for it.
	ErrTooManyInFlight = errors.New("core: too many decisions wait for redis")

	// ErrClosed is returned by a Gate that was closed.
	ErrClosed = errors.New("core: the gate is closed")
)
