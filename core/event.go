package core

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/keeper"
)

// EventKind says what an Event reports.
type EventKind uint8

// The kinds of an Event.
const (
	EventDecide        EventKind = iota + 1 // a Decide, Charge, Allow, or the charges of an Admit
	EventPeek                               // a Peek
	EventAtMost                             // an AtMost
	EventReserve                            // a Reserve or Wait
	EventSettle                             // a Settle
	EventCancel                             // a Cancel
	EventReset                              // a Reset
	EventRefundFailed                       // what a later denial made void could not be given back, and stays spent
	EventAcquire                            // an Acquire, TryAcquire, or the slot of an Admit
	EventRelease                            // a Release
	EventAdopted                            // a lost slot was taken again; see AdoptOnLoss
	EventLeaseLost                          // a lease was lost
	EventEvicted                            // a lease was taken away by Evict
	EventScriptMissing                      // Redis did not know a script, and was sent it
)

var eventKinds = [...]string{
	"none", "decide", "peek", "at most", "reserve", "settle", "cancel", "reset", "refund failed",
	"acquire", "release", "adopted", "lease lost", "evicted", "script missing",
}

// String returns the kind in lower-case words.
func (k EventKind) String() string { return nameOf(eventKinds[:], int(k)) }

// nameOf returns the name of a value of an enumeration.
func nameOf(names []string, value int) string {
	if value < len(names) {
		return names[value]
	}
	return "unknown"
}

// Event is what happened in a Gate.
type Event struct {
	Kind EventKind
	// Policy is the policy of a Reset. The policies of a decision are in its Results.
	Policy *Policy
	// Semaphore is that of a slot, nil for all else.
	Semaphore *Semaphore
	// Decision is the outcome of a decision, nil for all else. It must not be kept.
	Decision *Decision
	// Full is why an Acquire found no room. That is no error.
	Full *FullError
	// Err is what went wrong: the error that the caller got, or why a failure mode decided. A denial is no error.
	Err error
	// Took is the time of the operation, 0 for those of the Gate itself.
	Took time.Duration
}

var eventOf = map[algorithm.Operation]EventKind{
	algorithm.Decide: EventDecide, algorithm.Peek: EventPeek, algorithm.AtMost: EventAtMost, algorithm.Reserve: EventReserve,
}

// start returns the time if somebody observes.
func (g *Gate) start() (t time.Time) {
	if g.observe != nil {
		t = time.Now()
	}
	return t
}

// report tells the observer of a decision.
func (g *Gate) report(ctx context.Context, op algorithm.Operation, d *Decision, err error, start time.Time) {
	if g.observe == nil {
		return
	}
	seen := *d // keeps d off the heap
	if err == nil {
		err = d.Cause
	}
	g.observe(ctx, Event{Kind: eventOf[op], Decision: &seen, Err: err, Took: time.Since(start)})
}

// tell tells the observer of anything else.
func (g *Gate) tell(ctx context.Context, e Event) {
	if g.observe != nil {
		g.observe(ctx, e)
	}
}

// notice tells the observer what became of a lease.
func (g *Gate) notice(n keeper.Notice) {
	e := Event{Kind: EventLeaseLost, Err: ErrLeaseLost}
	switch n.Kind {
	case keeper.Adopted:
		e = Event{Kind: EventAdopted, Took: n.Took}
	case keeper.Evicted:
		e.Kind = EventEvicted
	}
	e.Semaphore, _ = n.Holding.Owner.(*Semaphore)
	g.tell(context.Background(), e)
}
