package request

import (
	"context"

	"github.com/headgate/headgate/internal/bloom"
	"github.com/headgate/headgate/internal/lease"
)

// Store decides requests on the state that it keeps. It is safe for concurrent use.
type Store interface {
	// Decide answers every request, in order and in one step, or returns an error and answers none.
	Decide(ctx context.Context, requests []Request) error
	// Answer returns what a Request has kept beside the state of a charge, or nothing.
	Answer(ctx context.Context, c *Charge) ([]byte, error)
	// Reset forgets the state of a charge, and its answer.
	Reset(ctx context.Context, c *Charge) error
	// Scan calls f with the key and the value of each state of that suffix, and with the time in
	// microseconds, until f returns false.
	Scan(ctx context.Context, suffix string, f func(key, value string, now int64) bool) error
}

// Unsent is an error of a call that was never sent, or that no server has run: nothing was spent,
// and no slot was taken.
type Unsent struct{ Err error }

func (u Unsent) Error() string { return u.Err.Error() }
func (u Unsent) Unwrap() error { return u.Err }

// Refusal is an error with which Redis has answered. It has the methods of redis.Error, and programs
// in memory do without the package of that.
type Refusal interface {
	error
	RedisError()
}

// LeaseStore keeps the leases of scopes. A scope is a semaphore below one outermost part. Each
// method returns one integer for each id, as the operations of package lease do. It is safe for
// concurrent use.
type LeaseStore interface {
	Acquire(ctx context.Context, scope string, q lease.Request) (lease.Grant, error)
	// Renew returns the microseconds that each lease has left: 0 if it is unknown, less if it was
	// evicted.
	Renew(ctx context.Context, scope string, micros int64, ids []string) (left []int64, err error)
	// RenewAll renews leases of many scopes and waits for no other call. It ends by the deadline of
	// ctx, and not with ctx. Again says that an earlier call has no answer yet: this one takes a
	// connection of its own.
	RenewAll(ctx context.Context, all []*Renewal, again bool)
	Release(ctx context.Context, scope string, ids []string) error
	Evict(ctx context.Context, scope string, ids []string) (was []int64, err error)
	List(ctx context.Context, scope string) (now int64, entries []lease.Entry, err error)
}

// Renewal is leases of one scope to renew, and what became of them.
type Renewal struct {
	Scope  string
	Micros int64
	IDs    []string

	Left []int64 // as Renew returns it
	Err  error
}

// FilterStore keeps Bloom filters. It is safe for concurrent use.
type FilterStore interface {
	// Ask answers for each item as bloom.Filter.Ask does. It runs in one step.
	Ask(ctx context.Context, filter string, s bloom.Shape, items []bloom.Item) ([]int64, error)
	// Count returns the bits that are set in a part, in the current generation and in the one before,
	// or -1 if the store has lost the part.
	Count(ctx context.Context, filter string, s bloom.Shape, part int64) (set [2]int64, err error)
	// Reset empties a filter, which may have any shape.
	Reset(ctx context.Context, filter string, s bloom.Shape) error
}

// OtherShape is the error of a filter that has another shape than it is asked with.
type OtherShape struct{ Shape bloom.Shape }

func (o OtherShape) Error() string { return "the filter has the shape " + o.Shape.String() }
