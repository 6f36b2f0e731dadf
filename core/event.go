package core

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/keeper"
)

// EventKind says what an Event reports.
type EventKind uint8

// The kinds of an Event.
const (
	EventDecide        EventKind = iota + 1 // a Decide, Charge, Allow, or the charges of an Admit
	EventPeek                               // a Peek
	EventSpendUpTo                          // a SpendUpTo
	EventReserve                            // a Reserve, or one attempt of a Limiter.Wait
	EventSettle                             // a Settle
	EventCancel                             // a Cancel
	EventReset                              // a Reset
	EventRefundFailed                       // charges of a denied request could not be refunded
	EventAcquire                            // an Acquire, TryAcquire, or the slot of an Admit
	EventRelease                            // a Release
	EventAdopted                            // a lost slot was taken again; see AdoptOnLoss
	EventLeaseLost                          // a lease was lost
	EventEvicted                            // a lease was taken away by Evict
	EventScriptMissing                      // Redis did not know a script, and was sent it
	EventCircuitOpened                      // a server of Redis failed, and is not asked for a while
	EventCircuitClosed                      // a server of Redis answers again
	EventOverload                           // calls ended as ErrOverloaded; told at most once a second
	EventFilter                             // a method of a Filter
	EventBlockKey                           // a BlockKey
	EventForgetStrikes                      // a ForgetStrikes
	EventHoldExpired                        // a Settle or Renew came after PolicyConfig.Hold
	EventAdjust                             // an Adjust
	EventRaiseUsed                          // a RaiseUsed
	EventLedger                             // a PolicyConfig.Ledger was asked for a key
	EventThreshold                          // a key has reached one of PolicyConfig.Thresholds
)

var eventKinds = [...]string{
	"none", "decide", "peek", "at most", "reserve", "settle", "cancel", "reset", "refund failed",
	"acquire", "release", "adopted", "lease lost", "evicted", "script missing",
	"circuit opened", "circuit closed", "overload", "filter",
	"block key", "forget strikes", "hold expired", "adjust", "at least", "ledger",
	"threshold",
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
	// Policy is that of an EventBlockKey, EventForgetStrikes, EventAdjust, EventRaiseUsed,
	// EventLedger or EventThreshold, and that of the first charge of a Reset. The policies of a
	// decision are in its Results.
	Policy *Policy
	// Key is that of an EventLedger, EventAdjust or EventRaiseUsed.
	Key Key
	// Semaphore is set for EventAcquire, EventRelease, EventAdopted, EventLeaseLost and
	// EventEvicted.
	Semaphore *Semaphore
	// Filter is set for EventFilter.
	Filter *Filter
	// Threshold is set for EventThreshold.
	Threshold *Threshold
	// Node is the address of the server of EventCircuitOpened, EventCircuitClosed and
	// EventOverload. It is empty if the client does not tell it.
	Node string
	// Source says who granted or denied the slot of an EventAcquire. It is SourceNone if nobody
	// did.
	Source Source
	// Decision is set for EventDecide, EventPeek, EventSpendUpTo and EventReserve. With an error it
	// denies, and may have no results. It must not be kept.
	Decision *Decision
	// Charges are what the Decision decided on, one for each of its results. They must not be kept.
	Charges []Charge
	// Full is why an EventAcquire found no room. That is no error.
	Full *FullError
	// Err is what went wrong: the error that the caller got, or why a failure mode decided. A
	// denial is no error.
	Err error
	// Took is the time of the operation. It is 0 for events that are no operation.
	Took time.Duration
}

// tell tells the observer, if there is one.
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
