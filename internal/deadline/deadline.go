// Package deadline gives contexts deadlines that cost no timer each.
package deadline

import (
	"context"
	"sync/atomic"
	"time"
)

// Patience returns how long a decision may take in a process that is short of CPU, and a round trip
// everywhere.
func Patience(timeout time.Duration) time.Duration { return max(time.Second, 5*timeout) }

// until is a context with a deadline and no timer.
type until struct {
	context.Context
	at time.Time
}

func (u *until) Deadline() (time.Time, bool) { return u.at, true }

// Until returns a context whose Deadline is the earlier one of at and the Deadline of ctx. It ends
// with ctx, but not at that time: a caller that waits with it must look at the Deadline.
func Until(ctx context.Context, at time.Time) context.Context {
	if own, ok := ctx.Deadline(); ok && own.Before(at) {
		return ctx
	}
	return &until{ctx, at}
}

// Keep returns a context with the values and the Deadline of ctx that does not end: a caller that
// waits with it must look at the Deadline.
func Keep(ctx context.Context) context.Context {
	kept := context.WithoutCancel(ctx)
	if at, ok := ctx.Deadline(); ok {
		return &until{kept, at}
	}
	return kept
}

// Untimed returns the deadline that Until set for a context, which no timer ends.
func Untimed(ctx context.Context) (at time.Time, ok bool) {
	if u, ok := ctx.(*until); ok {
		return u.at, true
	}
	return time.Time{}, false
}

// Deadlines makes contexts that end within a timeout. Those that begin within an eighth of it share
// the deadline of the first, while the timeout stays the same. It is safe for concurrent use and must
// not be copied after its first use. The zero value is ready to use.
type Deadlines struct{ last atomic.Pointer[shared] }

// shared is a deadline of several contexts.
type shared struct {
	context.Context
	timeout time.Duration
	until   time.Time // to be shared
}

// detached has the values of another context and ends at a deadline.
type detached struct {
	context.Context // the values
	deadline        *shared
}

func (d *detached) Deadline() (time.Time, bool) { return d.deadline.Deadline() }
func (d *detached) Done() <-chan struct{}       { return d.deadline.Done() }
func (d *detached) Err() error                  { return d.deadline.Err() }

// Detach returns a context with the values of ctx that ends within the timeout from now, and not with
// ctx.
func (d *Deadlines) Detach(ctx context.Context, now time.Time, timeout time.Duration) context.Context {
	s := d.last.Load()
	if s == nil || s.timeout != timeout || now.After(s.until) {
		timed, cancel := context.WithDeadline(context.Background(), now.Add(timeout))
		context.AfterFunc(timed, cancel) // nothing but its deadline ends it
		s = &shared{timed, timeout, now.Add(timeout / 8)}
		d.last.Store(s)
	}
	return &detached{ctx, s}
}

// Err returns the error of a context that has ended. A deadline that has passed counts even if its
// timer is late, because the timer of a socket for the same instant may fire first. A deadline that
// Until set ends no context.
func Err(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, untimed := Untimed(ctx); untimed {
		return nil
	}
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return nil
}
