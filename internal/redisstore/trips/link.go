package trips

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/deadline"
)

// quiet is how long a server says nothing before it counts as gone, or Config.Timeout if that is
// longer.
const quiet = 250 * time.Millisecond

// link is a client and the time that its calls have.
type link struct {
	Config
	// inline says that a call of the client ends at the deadline of its context. Calls of other clients
	// are left behind then, and end by the client's own timeouts.
	inline   bool
	quiet    time.Duration
	patience time.Duration // bounds a round trip, the client's handshake included
}

func (l *link) init(cfg Config) {
	l.Config = cfg
	l.quiet, l.patience = max(quiet, cfg.Timeout), deadline.Patience(cfg.Timeout)
	// No option makes a client heed its contexts' deadlines later and keeps its hooks.
	switch c := cfg.Client.(type) {
	case *redis.Client:
		l.inline = c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		l.inline = c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		l.inline = c.Options().ContextTimeoutEnabled
	}
}

// Patience is how long a round trip may take.
func (l *link) Patience() time.Duration { return l.patience }

// Within calls f with a context that ends with ctx or at its deadline, and within the timeout.
func (l *link) Within(ctx context.Context, f func(context.Context) error) error {
	end := time.Now().Add(l.Timeout)
	if at, ok := ctx.Deadline(); ok && at.Before(end) {
		end = at
	}
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	return l.bounded(ctx, func() error { return f(ctx) })
}

// bounded ends a call of the client when the context ends, even if the client would not.
func (l *link) bounded(ctx context.Context, call func() error) error {
	if l.inline {
		return call()
	}
	done := make(chan error, 1)
	l.Tasks.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				done <- &panicError{p}
			}
		}()
		done <- call()
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *link) notify(ctx context.Context, n Notice) {
	if l.Notify != nil {
		l.Notify(ctx, n)
	}
}

// notifyMissing notifies of n scripts that a server did not know. An observer may call the Gate, so no
// round trip waits for it.
func (l *link) notifyMissing(ctx context.Context, n int) {
	l.Tasks.Go(func() {
		for range n {
			l.notify(ctx, Notice{Kind: ScriptMissing})
		}
	})
}
