package trips

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/request"
)

const (
	maxSenders = 2 // round trips to one server at a time, without the one for operations
	// maxTrips is with how many on their way one that says nothing is still replaced by another. Each
	// holds calls, which a pool that has no connection sends when their callers have left.
	maxTrips = 3 * maxSenders
)

// queue joins calls that wait for a round trip to the same server. With fewer than two round trips
// in flight, a caller sends its call at once, on its own goroutine. Otherwise the call waits. A
// sender is a goroutine that sends every waiting call in one batch, answers them, and goes on until
// no call waits. Nothing waits for more calls to come, except that in a crowd the goroutines that
// are ready run first, such as those that the sender has just answered: otherwise the first of them
// would send its next call alone, and a server of many callers would get twice as many commands. A
// third round trip begins only while nothing but operations waits: decisions on a hot key merge, and
// two large batches of them cost the server less than three small ones. Round trips beside the senders
// do not count.
type queue struct {
	node  *node
	run   func()             // the method send, bound once
	alone deadline.Deadlines // of round trips that a caller makes alone
	all   deadline.Deadlines // of the others

	mu      sync.Mutex
	waiting []*Call
	trips   map[*trip]struct{}  // in flight
	unsure  []*Call             // in stateUnsure: other calls and the probe tell what became of them
	strays  map[string]struct{} // ids of slots that sent calls ask for, whose callers have left
	senders int
	crowd   bool // the last batch had several calls
	health
	pulse deadline.Pulse
	holds bool // the pulse, while there are calls
}

func newQueue(n *node) *queue {
	q := &queue{node: n, trips: make(map[*trip]struct{}), strays: make(map[string]struct{})}
	q.run = q.send
	// A beat ends the calls whose time ends before the next beat.
	q.timeout, q.pulse.Every = n.link.Timeout, n.link.Timeout/8
	q.pulse.Fired, q.pulse.Look = q.fired, q.tick
	return q
}

// beat has the pulse beat while there are calls.
func (q *queue) beat() {
	if !q.holds {
		q.holds = true
		q.pulse.Hold()
	}
}

// rests has the pulse rest if there are none. Of overload it then tells no more: the next beat may come
// hours later.
func (q *queue) rests() {
	if q.holds && len(q.waiting) == 0 && len(q.trips) == 0 && len(q.unsure) == 0 {
		q.holds, q.shed = false, false
		q.pulse.Drop()
	}
}

// do sends a call and returns its error. Nothing uses what the call carries after that.
func (q *queue) do(ctx context.Context, k *Call) error {
	q.mu.Lock()
	k.enter(ctx, q.lost)
	if q.leads(k) {
		q.lead(k)
	} else {
		q.wait(k)
	}
	q.mu.Unlock()
	select {
	case <-k.told:
	case <-ctx.Done():
		q.leave(k)
	}
	switch {
	case k.state == stateLeft:
		return k.why
	case k.panicked != nil && !k.Insists: // what insists has an error, and is sent again
		panic(k.panicked)
	}
	return k.err
}

// wait has a call wait for a sender, and starts one if it may.
func (q *queue) wait(k *Call) {
	q.start(k.Lane)
	k.state = stateWaits
	q.waiting = append(q.waiting, k)
	q.beat()
}

// start starts a sender for calls of that lane, if one may.
func (q *queue) start(lane Lane) {
	if q.starts(lane) {
		q.senders++
		q.node.link.Tasks.Go(q.run)
	}
}

// starts reports whether a round trip may begin with a call of that lane.
func (q *queue) starts(lane Lane) bool {
	return q.senders < maxSenders || q.senders == maxSenders && lane == Operations && !q.has(Decisions)
}

// leads reports whether a call's own caller sends it, because nothing else waits. To hand it to
// another goroutine would make a lone decision a fifth slower, which is felt only near to a server.
// So a sender greets a server that is far, or new, and a crowd, whose other callers are about to
// ask. It also takes the calls where turns are long: their callers leave in time, and the answers are
// read later. Of the calls that insist, only a release has its caller send it, unless the release may
// wait for longer than lead does, or the acquire of its slot is on its way.
func (q *queue) leads(k *Call) bool {
	alone := q.starts(k.Lane) && len(q.waiting) == 0 && !q.crowd
	return alone && q.quick && q.node.link.inline && !q.hasLongTurns() && (!k.Insists ||
		k.Releases != nil && k.End.Sub(k.entered) <= q.timeout && !q.stray(k.Releases))
}

// lead sends a call on its caller's own goroutine. The caller waits until the end of its time,
// whatever becomes of its context, and ends the client's call then. The lock is held, and free on the
// way.
func (q *queue) lead(k *Call) {
	q.senders++
	ctx, cancel := q.until(k)
	k.trip.begin(k.entered, k.lost, k)
	err := q.carry(ctx, &k.trip)
	cancel()
	q.answer(&k.trip, err)
	switch {
	case k.trip.beside:
	case len(q.waiting) > 0:
		q.node.link.Tasks.Go(q.run)
	default:
		q.senders--
	}
}

// doAll sends calls that insist, on their caller's own goroutine and beside all other round trips:
// where turns are long each goroutine on the way costs one. They have the time until the deadline
// of ctx. A new connection takes several, so none is made then. The errors are in
// the calls.
func (q *queue) doAll(ctx context.Context, calls []*Call, own bool) {
	end, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	defer cancel()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, k := range calls {
		k.enter(ctx, q.lost)
	}
	t := new(trip)
	t.begin(time.Now(), q.lost, calls...)
	t.own, t.beside = own && !q.hasLongTurns(), true
	q.answer(t, q.carry(ctx, t))
	for _, k := range calls {
		<-k.told
	}
}

// carry takes a trip to the server and back. Callers that wait may leave as soon as the commands are
// written. The lock is held, and free on the way.
func (q *queue) carry(ctx context.Context, t *trip) error {
	q.trips[t] = struct{}{}
	q.beat()
	q.mu.Unlock()
	t.pack(q.node.link.Cluster)
	if t.waited {
		q.frees(t)
	}
	err := q.node.travel(ctx, t)
	q.mu.Lock()
	return err
}

// frees lets the callers of a trip leave.
func (q *queue) frees(t *trip) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.written = true
	for _, k := range t.calls {
		k.state = stateSent
	}
}

// until returns the context of a round trip that the caller of a call makes alone.
func (q *queue) until(k *Call) (context.Context, context.CancelFunc) {
	end := k.End
	if own, ok := k.ctx.Deadline(); ok && own.Before(end) {
		end = own
	}
	if end.Before(k.entered.Add(q.timeout * 7 / 8)) { // those of others may be as early
		return context.WithDeadline(context.WithoutCancel(k.ctx), end)
	}
	return q.alone.Detach(k.ctx, k.entered, q.timeout), func() {}
}

// answer ends a trip. Its error fails the calls that have none of their own.
func (q *queue) answer(t *trip, err error) {
	delete(q.trips, t)
	q.returned(t, err)
	for _, k := range t.calls {
		if k.state == stateLeft {
			delete(q.strays, k.Acquires)
		} else if err == nil && k.err == nil || q.fails(k, t, err) {
			k.state = stateAnswered
			k.told <- struct{}{}
		}
	}
	if t.beside && len(q.waiting) > 0 { // a release may have waited for the acquire of its slot
		q.start(Operations)
	}
}

// fails gives a call its error: its own, or that of its trip. It reports false for a call that may have
// been answered late: that is unsure.
func (q *queue) fails(k *Call, t *trip, err error) bool {
	if k.err == nil {
		k.err = err
	}
	late := timedOut(k.err)
	if late && !k.Insists && q.doubtful(k, t.sent) {
		k.state, k.sent = stateUnsure, t.sent
		q.unsure = append(q.unsure, k)
		return false
	}
	if late && (q.isProven() || q.answers(k.entered, t.sent)) && deadline.Err(k.ctx) == nil {
		k.err = ErrOverloaded
	}
	q.ends(k.err)
	k.panicked, t.panicked = t.panicked, nil // one caller is enough
	return true
}

// left lets the caller of a call go that is not answered. A call that still waits is never sent.
func (q *queue) left(k *Call, why error) {
	switch {
	case k.state == stateWaits:
		why = request.Unsent{Err: why}
	case k.state == stateSent && k.Acquires != "":
		q.strays[k.Acquires] = struct{}{}
	}
	k.state, k.why = stateLeft, why
}

// isQuick reports whether the last round trip took less than a beat.
func (q *queue) isQuick() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.quick
}
