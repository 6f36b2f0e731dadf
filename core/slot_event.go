package core

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/keeper"
)

// AcquireEvent is an Acquire or TryAcquire, or the slot of an Admit.
type AcquireEvent struct {
	Semaphore *Semaphore
	// Source says who granted or denied the slot. It is SourceNone if nobody did.
	Source Source
	// Full is why there was no room. That is no error.
	Full *FullError
	// Err is the error that the caller received, or why a failure mode decided.
	Err  error
	Took time.Duration
}

// EventName returns "acquire".
func (e *AcquireEvent) EventName() string { return "acquire" }

// LeaseChange is what became of a lease.
type LeaseChange uint8

// The changes of a lease.
const (
	LeaseReleased LeaseChange = iota + 1 // by its holder
	LeaseLost                            // it was not renewed in time, or Redis has lost it
	LeaseAdopted                         // a lost slot was taken again; see AdoptOnLoss
	LeaseEvicted                         // by Semaphore.Evict
)

var leaseChanges = [...]string{
	"none", "lease released", "lease lost", "lease adopted", "lease evicted",
}

// String returns the change in lower-case words.
func (c LeaseChange) String() string { return nameOf(leaseChanges[:], int(c)) }

// LeaseEvent is the end of a lease, or a lease that goes on although it was lost.
type LeaseEvent struct {
	Kind      LeaseChange
	Semaphore *Semaphore
	// Err is why a release failed, which is sent again until Redis answers, or ErrLeaseLost.
	Err  error
	Took time.Duration // 0 if the event is no call
}

// EventName returns the name of the change.
func (e *LeaseEvent) EventName() string { return e.Kind.String() }

var (
	acquireEvents = sync.Pool{New: func() any { return new(AcquireEvent) }}
	leaseEvents   = sync.Pool{New: func() any { return new(LeaseEvent) }}
)

// tell tells the observer of an acquire.
func (s *Semaphore) tell(ctx context.Context, told AcquireEvent) {
	e := acquireEvents.Get().(*AcquireEvent)
	*e = told
	s.gate.tell(ctx, e)
	*e = AcquireEvent{}
	acquireEvents.Put(e)
}

// tellLease tells the observer what became of a lease.
func (s *Semaphore) tellLease(ctx context.Context, told LeaseEvent) {
	if s.gate.observe == nil {
		return
	}
	told.Semaphore = s
	e := leaseEvents.Get().(*LeaseEvent)
	*e = told
	s.gate.tell(ctx, e)
	*e = LeaseEvent{}
	leaseEvents.Put(e)
}

// notice tells the observer what became of a lease without its holder.
func notice(n keeper.Notice) {
	e := LeaseEvent{Kind: LeaseLost, Err: ErrLeaseLost}
	switch n.Kind {
	case keeper.Adopted:
		e = LeaseEvent{Kind: LeaseAdopted, Took: n.Took}
	case keeper.Evicted:
		e.Kind = LeaseEvicted
	}
	if s, ok := n.Holding.Owner.(*Semaphore); ok {
		s.tellLease(context.Background(), e)
	}
}
