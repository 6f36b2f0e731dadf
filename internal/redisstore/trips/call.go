package trips

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/deadline"
)

// Call is what one caller asks of a server. The caller sets its exported fields before Servers.Do.
type Call struct {
	Outermost string // part of its keys, which picks the hash slot
	Lane      Lane
	Weight    int      // its work for the server, of which a batch has a limited amount
	Insists   bool     // is sent although the server is known to fail
	Acquires  string   // the id of the slot that it asks for
	Releases  []string // the ids of the slots that it gives back

	End time.Time // deadline

	parcel Parcel
	alone  bool          // shares its script with no other, because it failed beside others
	told   chan struct{} // receives when the call is answered or its time is over
	trip   trip          // in which its own caller sends it
	attempt
}

// attempt is one way of a call through the queue.
type attempt struct {
	ctx      context.Context // of the caller
	entered  time.Time
	lost     time.Duration // health.lost, as the call entered
	sent     time.Time     // if it is unsure
	err      error
	why      error // its caller has left
	panicked any
	state    state // the queue's lock guards it
}

// Lane is one of the two lines in which calls wait for a server.
type Lane uint8

const (
	// Decisions merge, so that a large batch of them costs the server less than two small ones.
	Decisions Lane = iota
	// Operations, such as those on leases, may run a second time: those that fail with others are
	// sent again alone.
	Operations
)

type state uint8

const (
	stateLeads state = iota // its own caller sends it, and stays until its round trip ends
	stateWaits
	statePacked // a sender writes its command
	stateSent   // its caller may leave
	stateUnsure // it was sent, and its connection said nothing; see queue.doubtful
	stateAnswered
	stateLeft
)

// NewCall returns the call that carries a parcel.
func NewCall(p Parcel) Call { return Call{parcel: p, told: make(chan struct{}, 1)} }

// Reset makes the call new, and reports whether it may be used again: not if its caller has left,
// because a sender may still hold it.
func (k *Call) Reset() bool {
	if k.state == stateLeft {
		return false
	}
	clear(k.trip.commands) // they hold what the client was given
	*k = Call{parcel: k.parcel, told: k.told, trip: k.trip}
	return true
}

// Bound gives the call its time, which ends with that of ctx.
func (k *Call) Bound(ctx context.Context, timeout time.Duration) {
	k.End = time.Now().Add(timeout)
	if at, ok := deadline.Untimed(ctx); ok && at.Before(k.End) {
		k.End = at
	}
}

// Split has the call sent again alone, because it failed beside others.
func (k *Call) Split() { k.err = errSplit{errFailed} }

// enter begins an attempt. The caller holds the call until a sender may have it.
func (k *Call) enter(ctx context.Context, lost time.Duration) {
	k.attempt = attempt{ctx: ctx, entered: time.Now(), lost: lost}
}

// patient reports whether the call may wait in line for as long as a round trip may take, while the
// server answers others: a slot, and what insists, is worth the wait. The others wait for half of their
// time, so that the other half is left for the round trip.
func (k *Call) patient() bool { return k.Lane == Operations || k.Insists }

// sharesWith reports whether two calls may share a script. On a cluster a script has keys of one
// hash slot.
func (k *Call) sharesWith(o *Call, cluster bool) bool {
	return !k.alone && !o.alone && (!cluster || k.Outermost == o.Outermost) && k.parcel.Joins(o.parcel)
}
