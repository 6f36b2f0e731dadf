package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/redisstore/trips"
)

// The exit codes. Scripts rely on them; docs/reference/command.md states them.
const (
	exitOK            = 0
	exitNo            = 1 // the answer is no: denied, something is wrong, nothing changed
	exitUsage         = 2 // the command line or a file is wrong
	exitOutage        = 3 // Redis does not answer
	exitMisconfigured = 4 // Redis refuses: a password, a right, another kind of server
	exitNothing       = 5 // the subject or the id is not there
	exitUnknown       = 6 // a limit is not known, so there is no answer
	exitInterrupted   = 130
)

// exitError is an error with the exit code that it asks for. It has no words where the output says
// all.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usagef returns an error of the command line.
func usagef(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// refusef returns the words of a change that was not made.
func refusef(format string, args ...any) error {
	return &exitError{exitNo, fmt.Errorf(format, args...)}
}

// codeOf returns the exit code of an error.
func codeOf(err error) int {
	var e *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &e):
		return e.code
	case errors.As(err, new(*inspect.UnknownLimit)), errors.As(err, new(inspect.Unchanged)):
		return exitNo
	case errors.Is(err, core.ErrKey), errors.Is(err, core.ErrCharge), errors.Is(err, core.ErrPeriod):
		return exitUsage
	case errors.Is(err, core.ErrMisconfigured), trips.Classify(err) == trips.Misconfigured:
		return exitMisconfigured
	}
	return exitOutage
}
