package semaphore

import (
	"context"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/enum"
	"github.com/headgate/headgate/internal/keeper"
)

// AcquireEvent is an Acquire, or the slot of an Admit. It is a core.Event.
type AcquireEvent struct {
	Semaphore *Semaphore
	// Key is that of the innermost cap.
	Key core.Key
	// Source says who granted or denied the slot. It is core.SourceNone if nobody did.
	Source core.Source
	// Full is why there was no room. That is no error.
	Full *FullError
	// Waited says that the caller was in the queue, or let holders come first at a server that may be
	// empty.
	Waited bool
	// Err is the error that the caller received, or why a failure mode decided.
	Err  error
	Took time.Duration
}

// Refused reports whether the caller was refused a slot: there was no room, or a failure mode granted none.
func (e *AcquireEvent) Refused() bool {
	return e.Full != nil || e.Source == core.SourceClosed || e.Source == core.SourceOverload
}

// EventName returns "acquire".
func (e *AcquireEvent) EventName() string { return "acquire" }

// LeaseChange is what became of a Lease.
type LeaseChange uint8

const (
	// LeaseReleased is a Release.
	LeaseReleased LeaseChange = iota + 1
	// LeaseLost is a lease that was not renewed in time, or that Redis has lost.
	LeaseLost
	// LeaseAdopted is a lost slot that was taken again; see LossAdopt.
	LeaseAdopted
	// LeaseEvicted is a lease that Evict took away.
	LeaseEvicted
)

var leaseChanges = [...]string{
	"none", "lease released", "lease lost", "lease adopted", "lease evicted",
}

// String returns the change in lower-case words.
func (c LeaseChange) String() string { return enum.Name(leaseChanges[:], int(c)) }

// LeaseEvent is the end of a Lease, or a lease that goes on although it was lost. It is a
// core.Event.
type LeaseEvent struct {
	Kind      LeaseChange
	Semaphore *Semaphore
	// Err is ErrLeaseLost, or why a Release failed, which is sent again until Redis answers.
	Err error
	// Held is how long the slot was held before its Release. It is 0 for all other changes.
	Held time.Duration
	Took time.Duration // 0 if the event is no call
}

// EventName returns the name of the change.
func (e *LeaseEvent) EventName() string { return e.Kind.String() }

// tell tells the observer what became of a lease.
func (s *Semaphore) tell(ctx context.Context, e LeaseEvent) {
	if s.hub.Observe != nil {
		told := e // only this copy is on the heap
		told.Semaphore = s
		s.hub.Observe(ctx, &told)
	}
}

// notice tells the observer what became of a lease without its holder.
func (s *Semaphore) notice(n keeper.Notice) {
	e := LeaseEvent{Kind: LeaseLost, Err: ErrLeaseLost}
	switch n.Kind {
	case keeper.Adopted:
		e = LeaseEvent{Kind: LeaseAdopted, Took: n.Took}
	case keeper.Evicted:
		e.Kind = LeaseEvicted
	}
	s.tell(context.Background(), e)
}
