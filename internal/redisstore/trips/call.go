package trips

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/request"
)

// Call is what one caller asks of a server. The caller sets its exported fields before Servers.Do.
type Call struct {
	Outermost string // part of its keys, which picks the hash slot
	Lane      Lane
	Weight    int      // its work for the server, of which a batch has a limited amount
	Insists   bool     // is sent although the server is known to fail
	Acquires  string   // the id of the slot that it asks for
	Releases  []string // the ids of the slots that it gives back

	Turn time.Time // queue deadline while the server answers
	End  time.Time // deadline while it does not

	parcel Parcel
	alone  bool // shares its script with no other

	began    time.Time       // when it got its time, until it enters
	ctx      context.Context // of the caller
	entered  time.Time
	lost     time.Duration // health.lost, as the call entered
	sent     time.Time     // if it is unsure
	err      error
	why      error // its caller has left
	panicked any
	state    state         // the queue's lock guards it
	told     chan struct{} // receives when the call is answered or its caller has left
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
	stateWaits   state = iota
	stateLeads         // its caller sends it
	stateEncodes       // the sender reads what it carries
	stateSent
	stateUnsure // it was sent, and its connection said nothing; see pending.unsure
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
	*k = Call{parcel: k.parcel, told: k.told}
	return true
}

// Bound gives the call its time: half of it to wait for its turn, so that the other half is left
// for the round trip.
func (k *Call) Bound(ctx context.Context, timeout time.Duration) {
	now := time.Now()
	k.began = now
	k.End = now.Add(timeout)
	if at, ok := deadline.Untimed(ctx); ok && at.Before(k.End) {
		k.End = at
	}
	k.Turn = now.Add(k.End.Sub(now) / 2)
}

// Split has the call sent again alone, because it failed beside others.
func (k *Call) Split() { k.err = errSplit{errFailed} }

// enter begins the wait for an answer. A call that has just got its time needs no other look at the
// clock, which takes the time of a small allocation.
func (k *Call) enter(ctx context.Context, lost time.Duration) {
	if k.began.IsZero() {
		k.began = time.Now()
	}
	k.entered, k.began = k.began, time.Time{}
	k.state, k.ctx, k.lost = stateWaits, ctx, lost
	k.err, k.panicked = nil, nil
}

// leave says that the caller has left. A call that still waits is never sent.
func (k *Call) leave(why error) {
	if k.state == stateWaits {
		why = request.Unsent{Err: why}
	}
	k.state, k.why = stateLeft, why
}

// sharesWith reports whether two calls may share a script. On a cluster a script has keys of one
// hash slot.
func (k *Call) sharesWith(o *Call, cluster bool) bool {
	return !k.alone && !o.alone && (!cluster || k.Outermost == o.Outermost) && k.parcel.Joins(o.parcel)
}
