package core

import (
	"context"
	"sync/atomic"
	"time"
)

// deadlines makes contexts that end within a timeout. A timer for each decision would cost as much as the rest of
// it, because setting one may wake another thread; so decisions that begin within an eighth of the timeout share one,
// and all of these end at the first one's deadline.
type deadlines struct {
	timeout time.Duration
	expire  func(*sharedDeadline) // is told of each that has passed
	last    atomic.Pointer[sharedDeadline]
}

type sharedDeadline struct {
	context.Context
	until  time.Time // to be shared
	passed atomic.Bool
}

// bounded has the values of the caller's context and ends at a shared deadline. It does not end when the caller's
// is cancelled: a command that was sent is waited for, so that its answer is known.
type bounded struct {
	context.Context // the caller's
	deadline        context.Context
	patient         bool // leaves Redis at least half of the timeout to answer
}

func (b *bounded) Deadline() (time.Time, bool) { return b.deadline.Deadline() }
func (b *bounded) Done() <-chan struct{}       { return b.deadline.Done() }
func (b *bounded) Err() error                  { return b.deadline.Err() }

// shared is the deadline that a bounded context shares with others, or nil.
func shared(ctx context.Context) *sharedDeadline {
	if b, ok := ctx.(*bounded); ok {
		s, _ := b.deadline.(*sharedDeadline)
		return s
	}
	return nil
}

// left is done when the caller is gone, for whom a bounded context goes on.
func left(ctx context.Context) <-chan struct{} {
	if b, ok := ctx.(*bounded); ok {
		return b.Context.Done()
	}
	return nil
}

// leaving is the error of who waits no more, because the context has ended or its caller is gone.
func leaving(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return context.Canceled
}

// patient says whether a context leaves Redis at least half of the timeout to answer.
func patient(ctx context.Context) bool {
	b, ok := ctx.(*bounded)
	return !ok || b.patient
}

// bound returns a context that ends within the timeout, and before the deadline of caller.
func (d *deadlines) bound(caller context.Context) (context.Context, context.CancelFunc) {
	now := time.Now()
	if at, ok := caller.Deadline(); ok && at.Before(now.Add(d.timeout)) {
		ctx, cancel := context.WithDeadline(context.Background(), at)
		return &bounded{caller, ctx, at.Sub(now) >= d.timeout/2}, cancel
	}
	s := d.last.Load()
	if s == nil || now.After(s.until) {
		ctx, cancel := context.WithDeadline(context.Background(), now.Add(d.timeout))
		s = &sharedDeadline{Context: ctx, until: now.Add(d.timeout / 8)}
		context.AfterFunc(ctx, func() { // it ends by its deadline only
			cancel()
			s.passed.Store(true)
			d.expire(s)
		})
		d.last.Store(s)
	}
	return &bounded{caller, s, true}, func() {}
}

// ended is the error of a context that has ended. A deadline that has passed counts although its timer may be late: a
// socket's timer at the same instant may come first.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return nil
}
