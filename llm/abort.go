package llm

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
)

// Abort decides about a response whose client has left.
type Abort uint8

const (
	// AbortStop stops it. The budgets are charged for its input and the output that was seen.
	AbortStop Abort = iota
	// AbortDrain reads it to its end, which states the usage, and passes nothing on. The response
	// keeps its slot until then. It stops if the slot is lost.
	AbortDrain
)

// errDrained is the cause with which the handler's context ends when the client has left and the
// response takes longer than Config.DrainFor.
var errDrained = errors.New("llm: the response was read on for too long")

// context returns the handler's context. With AbortDrain it goes on after the client has left.
func (x *call) context(parent context.Context) (context.Context, func()) {
	if x.meter.cfg.Abort != AbortDrain {
		ctx, cancel := context.WithCancelCause(parent)
		x.stop = cancel
		return ctx, func() { cancel(nil) }
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	x.stop = cancel
	unwatch := context.AfterFunc(parent, func() {
		if !left(parent) {
			cancel(context.Cause(parent))
			return
		}
		timer := time.NewTimer(x.meter.cfg.DrainFor)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(errDrained)
		case <-nethttp.LeaseFromContext(parent).Lost():
			cancel(semaphore.ErrLeaseLost)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		unwatch()
		cancel(nil)
	}
}

// left reports whether a request's context has ended because its client has left, and not because
// its slot is lost.
func left(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return cause != nil && !errors.Is(cause, semaphore.ErrLeaseLost) && !errors.Is(cause, core.ErrClosed)
}
