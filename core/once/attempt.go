package once

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/breaker"
)

const (
	// longestPause is the longest pause between two attempts to record what is done.
	longestPause = time.Second
	// resentBytes bounds the answers that are sent again. A longer one may be why Redis did not answer in
	// time, and would keep it from answering others.
	resentBytes = 64 << 10
)

// Attempt is work on a key of a Once. Its methods are safe for concurrent use, and may be called on
// nil. Only the first call of Succeed or Fail counts; later calls do nothing and return nil.
type Attempt struct {
	once  *Once
	key   core.Key
	lease *semaphore.Lease
	ended atomic.Bool
}

// Context returns the context for the work. It ends when the Attempt does, and when another caller
// may begin, with the cause semaphore.ErrLeaseLost.
func (a *Attempt) Context() context.Context {
	if a == nil {
		return context.Background()
	}
	return a.lease.Context()
}

// Succeed remembers that the key is done. It runs to its end even if ctx is cancelled, for about
// core.Config.Timeout. If Redis fails or refuses, the error wraps ErrNotRecorded, and Succeed sends
// it again in the background, until Redis has it or the Gate is closed. The key stays taken
// meanwhile, as long as its lease can be renewed. If the lease was lost before, the error wraps
// semaphore.ErrLeaseLost: the key is remembered, and another caller may have worked on it too.
func (a *Attempt) Succeed(ctx context.Context) error { return a.SucceedWith(ctx, nil) }

// SucceedWith is Succeed, and keeps an answer in the same step, which Once.Answer returns until the
// Window is over. If another caller has recorded the key before, because the lease was lost, its answer
// stays. An answer of more than 64 KiB is sent once: if that fails, the key is recorded without it.
func (a *Attempt) SucceedWith(ctx context.Context, answer []byte) error {
	if a == nil || a.ended.Swap(true) {
		return nil
	}
	lost := false
	select {
	case <-a.lease.Lost():
		lost = true
	default:
	}
	ctx = context.WithoutCancel(ctx)
	answer = bytes.Clone(answer) // it may be sent after SucceedWith returns
	err := a.remember(ctx, answer)
	if err == nil && lost {
		err = fmt.Errorf("once: %w", semaphore.ErrLeaseLost)
	}
	if err == nil || errors.Is(err, semaphore.ErrLeaseLost) {
		_ = a.lease.Release(ctx) // on failure it ends
		return err
	}
	if len(answer) > resentBytes {
		answer = nil
	}
	l := a.lease.Detach()
	tasks := a.once.hub.Tasks
	tasks.Go(func() {
		// What is done is done, also if the lease is lost, and whatever Redis answers: an operator
		// gives a right or a password back.
		for pause := breaker.Pause; tasks.Sleep(pause); pause = min(2*pause, longestPause) {
			if a.remember(ctx, answer) == nil {
				break
			}
		}
		_ = l.Release(ctx) // on failure it ends
	})
	return fmt.Errorf("%w: %w", ErrNotRecorded, err)
}

// remember works on a closed Gate too, whose holders finish.
func (a *Attempt) remember(ctx context.Context, answer []byte) error {
	return inside.Mark(ctx, a.once.gate, a.once.done, a.key, answer)
}

// Fail lets the next caller try. If it fails, it is sent again in the background until Redis
// answers, as by semaphore.Lease.Release.
func (a *Attempt) Fail(ctx context.Context) error {
	if a == nil || a.ended.Swap(true) {
		return nil
	}
	return a.lease.Release(ctx)
}
