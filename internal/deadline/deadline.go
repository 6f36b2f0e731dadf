// Package deadline makes contexts that end within a timeout.
//
// A timer for each decision would cost as much as the rest of the decision, because setting one may
// wake another thread. So decisions that begin within an eighth of the timeout share one deadline:
// that of the first.
package deadline

import (
	"context"
	"sync/atomic"
	"time"
)

// Deadlines makes contexts that end within Timeout. It is safe for concurrent use and must not be
// copied after its first use.
type Deadlines struct {
	Timeout time.Duration
	// Expire is called with each shared deadline that has passed. It may be nil.
	Expire func(*Shared)

	last atomic.Pointer[Shared]
}

// Shared is a deadline of several contexts.
type Shared struct {
	context.Context
	until  time.Time // to be shared
	passed atomic.Bool
}

// Passed reports whether the deadline has passed. It is true before Expire is called.
func (s *Shared) Passed() bool { return s.passed.Load() }

// bounded has the values of the caller's context and ends at a deadline. It does not end when the
// caller's context is cancelled: a command that was sent is waited for, so that its answer is
// known.
type bounded struct {
	context.Context // the caller's
	deadline        context.Context
	patient         bool
}

func (b *bounded) Deadline() (time.Time, bool) { return b.deadline.Deadline() }
func (b *bounded) Done() <-chan struct{}       { return b.deadline.Done() }
func (b *bounded) Err() error                  { return b.deadline.Err() }

// Bound returns a context that ends within the timeout, and at the deadline of the caller's context
// if that is earlier.
func (d *Deadlines) Bound(caller context.Context) (context.Context, context.CancelFunc) {
	now := time.Now()
	if at, ok := caller.Deadline(); ok && at.Before(now.Add(d.Timeout)) {
		ctx, cancel := context.WithDeadline(context.Background(), at)
		return &bounded{caller, ctx, at.Sub(now) >= d.Timeout/2}, cancel
	}
	s := d.last.Load()
	if s == nil || now.After(s.until) {
		ctx, cancel := context.WithDeadline(context.Background(), now.Add(d.Timeout))
		s = &Shared{Context: ctx, until: now.Add(d.Timeout / 8)}
		context.AfterFunc(ctx, func() { // nothing but its deadline ends it
			cancel()
			s.passed.Store(true)
			if d.Expire != nil {
				d.Expire(s)
			}
		})
		d.last.Store(s)
	}
	return &bounded{caller, s, true}, func() {}
}

// At returns a context with the values of the caller's that ends at a time, and not with the
// caller's.
func At(caller context.Context, end time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithDeadline(context.Background(), end)
	return &bounded{caller, ctx, true}, cancel
}

// Caller returns the caller's context of a context made by Bound or At, and whether it is one.
// Otherwise it returns ctx.
func Caller(ctx context.Context) (caller context.Context, ok bool) {
	if b, ok := ctx.(*bounded); ok {
		return b.Context, true
	}
	return ctx, false
}

// SharedOf returns the deadline that a context made by Bound shares with others, or nil.
func SharedOf(ctx context.Context) *Shared {
	if b, ok := ctx.(*bounded); ok {
		s, _ := b.deadline.(*Shared)
		return s
	}
	return nil
}

// CallerDone returns the Done channel of the caller's context of a context made by Bound or At. It
// is nil for others.
func CallerDone(ctx context.Context) <-chan struct{} {
	if b, ok := ctx.(*bounded); ok {
		return b.Context.Done()
	}
	return nil
}

// Cause returns why a caller stops to wait: the error of ctx, or context.Canceled if the caller has
// gone.
func Cause(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return context.Canceled
}

// Patient reports whether a context leaves Redis at least half of the timeout to answer.
func Patient(ctx context.Context) bool {
	b, ok := ctx.(*bounded)
	return !ok || b.patient
}

// Err returns the error of a context that has ended. A deadline that has passed counts even if its
// timer is late: the timer of a socket at the same instant may fire first.
func Err(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return nil
}
