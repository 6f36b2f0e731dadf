package redisstore

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/deadline"
)

const (
	maxSenders     = 2   // round trips to one server at a time, without the one for leases
	maxBatchCalls  = 128 // the server does nothing else while it runs a batch
	maxBatchWeight = 640 // the sum of weights, which grows with the work of the server
	minHalf        = 4   // the most calls that always share a batch
)

// queue joins calls that wait for a round trip to the same server. With fewer than two round trips in
// flight, a caller sends its call at once, on its own goroutine. Otherwise the call waits. A sender
// is a goroutine that sends every waiting call in one batch, answers them, and goes on until no call
// waits. Nothing waits for more calls to come, except that in a crowd the goroutines that are ready
// run first. A third round trip begins only while nothing but operations on leases waits: decisions on
// a hot key merge, and two large batches of them cost the server less than three small ones.
//
// Callers leave when their own contexts end, or when their time is over: uncharged if their calls
// still wait, with an unknown outcome if they were sent. See end.
type queue struct {
	node *node
	run  func() // the method send, bound once

	mu      sync.Mutex
	senders int
	crowd   bool // the last batch had several calls
	quick   bool // the last round trip was answered in less than a step
	waiting []*call
	strays  map[string]struct{} // ids of slots that are asked for by calls whose callers have left
	trips   []*trip             // without an answer yet
	free    []*trip             // to be used again
	reopens chan struct{}

	heard    time.Time // when the last call was sent of those that the server has answered
	answered time.Time // when the server last answered

	timer  *time.Timer // looks for calls whose time is over
	timed  bool        // the timer runs
	due    time.Time   // when it fires
	lagged time.Time   // when this process last had too little time for its goroutines
	shed   bool        // calls ended as overload, which was not told yet
	told   time.Time   // when overload was last told
}

func newQueue(n *node) *queue {
	q := &queue{node: n, strays: make(map[string]struct{})}
	q.run = q.send
	return q
}

// do sends a call and returns its error. Nothing uses the call's requests after that.
func (q *queue) do(ctx context.Context, k *call) error {
	q.mu.Lock()
	k.state, k.ctx, k.entered = callWaits, ctx, time.Now()
	k.reply, k.values, k.err = nil, nil, nil
	starts := q.senders < maxSenders || q.senders == maxSenders && k.isOwn() && q.onlyLeases()
	if starts {
		q.senders++
	}
	if starts && q.leads(k) {
		q.sendAlone(k)
	} else {
		q.waiting = append(q.waiting, k)
		if starts {
			q.node.store.Tasks.Go(q.run)
		}
		q.watch()
		q.mu.Unlock()
		select {
		case <-k.told:
		case <-ctx.Done():
			q.leave(k)
		}
	}
	switch {
	case k.state == callLeft:
		return k.why
	case k.panicked != nil && !k.insists: // what insists has an error, and is sent again
		panic(k.panicked)
	}
	return k.err
}

// leads reports whether a call's own caller sends it, because nothing else waits. To hand it to
// another goroutine would make a lone decision a fifth slower (BenchmarkDecide), which is felt only
// near to a server. So a sender greets a server that is far, or new. Of the calls that insist, only a
// release does, unless it may wait for longer than sendAlone or the acquire of its slot is on its way.
func (q *queue) leads(k *call) bool {
	if len(q.waiting) > 0 || !q.quick || !q.node.store.inline || time.Since(q.lagged) < lagMemory {
		return false
	}
	return !k.insists ||
		k.releases != nil && k.end.Sub(k.entered) <= q.node.store.Timeout && !q.stray(k.releases)
}

// sendAlone sends a call on its caller's own goroutine. The caller waits until the end of its time,
// whatever becomes of its context, and ends the client's call then. The lock is held, and is free
// afterwards.
func (q *queue) sendAlone(k *call) {
	t := q.newTrip()
	t.calls, k.state = append(t.calls, k), callLeads
	q.trips, q.crowd = append(q.trips, t), false
	q.watch()
	q.mu.Unlock()
	ctx, cancel := q.node.store.until(k)
	defer cancel()
	err := q.node.travel(ctx, t)
	q.mu.Lock()
	q.answer(t, err)
	if len(q.waiting) > 0 {
		q.node.store.Tasks.Go(q.run)
	} else {
		q.senders--
	}
	q.mu.Unlock()
}

// until returns the context of a round trip that the caller of a call makes alone.
func (s *Store) until(k *call) (context.Context, context.CancelFunc) {
	end := k.end
	own, ok := k.ctx.Deadline()
	if ok = ok && own.Before(end); ok {
		end = own
	}
	if ok || end.Before(k.entered.Add(s.Timeout*7/8)) { // those of others may be as early
		return context.WithDeadline(context.WithoutCancel(k.ctx), end)
	}
	return s.alone.Detach(k.ctx), func() {}
}

// watch makes sure that the timer runs while there are calls.
func (q *queue) watch() {
	if q.timed || len(q.waiting) == 0 && len(q.trips) == 0 {
		return
	}
	q.timed, q.due = true, time.Now().Add(q.step())
	if q.timer == nil {
		q.timer = time.AfterFunc(q.step(), q.tick)
	} else {
		q.timer.Reset(q.step())
	}
}

// send sends batches until no call waits.
func (q *queue) send() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) > 0 {
		for n := 0; q.crowd && n < len(q.waiting) && len(q.waiting) < q.room(); {
			n = len(q.waiting)
			q.yield()
		}
		if q.senders > maxSenders && !q.onlyLeases() {
			break
		}
		t := q.take()
		if len(t.calls) == 0 { // the other sender took them, or what waits is for it to answer
			q.free = append(q.free, t)
			break
		}
		q.trips = append(q.trips, t)
		q.mu.Unlock()
		err := q.node.travel(q.node.store.trips.Detach(t.calls[0].ctx), t)
		q.mu.Lock()
		q.answer(t, err)
		if err != nil {
			q.rest()
		}
	}
	q.senders--
}

func (q *queue) newTrip() (t *trip) {
	if n := len(q.free); n > 0 {
		t, q.free = q.free[n-1], q.free[:n-1]
	} else {
		t = new(trip)
	}
	t.sent = time.Now()
	return t
}

// onlyLeases reports whether no decision waits.
func (q *queue) onlyLeases() bool {
	return !slices.ContainsFunc(q.waiting, func(k *call) bool { return !k.isOwn() })
}

// room is the most calls of a batch: each sender's part of all unanswered ones, so that the callers of
// one batch get ready while the server decides another. While decisions wait there are two parts.
func (q *queue) room() int {
	n := len(q.waiting)
	for _, t := range q.trips {
		n += len(t.calls)
	}
	parts := maxSenders
	if q.onlyLeases() {
		parts = max(parts, q.senders)
	}
	return min(maxBatchCalls, max(minHalf, (n+1)/parts))
}

// encoded says that the batch needs the requests of its calls no more.
func (q *queue) encoded(t *trip) {
	q.mu.Lock()
	for _, k := range t.calls {
		if k.state == callEncodes {
			k.state = callSent
		}
	}
	q.mu.Unlock()
}

// answer ends a trip. An error that it has is that of all calls without one of their own.
func (q *queue) answer(t *trip, err error) {
	q.trips = slices.DeleteFunc(q.trips, func(o *trip) bool { return o == t })
	q.quick = err == nil && time.Since(t.sent) < q.step()
	if err == nil {
		q.hears(t.sent)
	}
	for _, k := range t.calls {
		if k.state == callLeft {
			delete(q.strays, k.acquires)
			continue
		}
		if k.err == nil {
			k.err = err
		}
		if err != nil && timedOut(err) && q.answers(k, t.sent) && deadline.Err(k.ctx) == nil {
			k.err = ErrOverloaded
		}
		q.shed = q.shed || k.err != nil && Classify(k.err) == Overload
		k.panicked, t.panicked = t.panicked, nil // one caller is enough
		waits := k.state != callLeads
		if k.state = callAnswered; waits {
			k.told <- struct{}{}
		}
	}
	t.reset()
	q.free = append(q.free, t)
}

// yield lets other goroutines run, without the lock.
func (q *queue) yield() {
	q.mu.Unlock()
	runtime.Gosched()
	q.mu.Lock()
}
