package redisstore

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/request"
)

const (
	maxInFlight    = 2   // batches
	maxBatchCalls  = 128 // the server does nothing else while it runs a batch
	maxBatchWeight = 640 // the sum of weights, which grows with the work of the server
	minHalf        = 16  // fewer calls are not parted into two batches
)

// queue joins calls that wait for a round trip to the same server. With fewer than two batches in
// flight, a caller sends its batch immediately, on its own goroutine. Otherwise the call waits, and
// the next leader sends every waiting call. Nothing waits for more calls to come, except that in a
// crowd the goroutines that are ready run first. There is neither a timer nor a goroutine.
//
// No call in a batch has a later deadline than its leader, and the round trip ends at the leader's.
// The other callers leave when their own contexts end: uncharged if their calls still wait, with an
// unknown outcome if they are in flight. The owner of a shared deadline calls expire when it
// passes.
type queue struct {
	store *Store

	mu       sync.Mutex
	inFlight int
	crowd    bool // the last batch had several calls
	waiting  []*call
	sent     [][]*call // batches in flight
	free     [][]*call // to be used again

	serverTime atomic.Int64 // when a calendar's period was last found to have passed
}

// follower is the error of a batch to the callers that did not lead it: it is one failure, not one
// for each caller.
type follower struct{ error }

func (f follower) Unwrap() error { return f.error }

// ErrPanicked is the error of a round trip that did not return, because a hook of the client
// panicked.
var ErrPanicked = errors.New("redisstore: the call panicked")

// do returns the reply to a call. Nothing uses the call's requests after that.
func (q *queue) do(ctx context.Context, k *call) ([]int64, error) {
	q.mu.Lock()
	if k.shared != nil && k.shared.Passed() {
		q.mu.Unlock()
		return nil, deadline.Cause(ctx)
	}
	k.state, k.reply, k.err = callWaits, nil, nil
	q.waiting = append(q.waiting, k)
	leads := q.inFlight < maxInFlight
	if leads {
		q.inFlight++
		k.state = callLeads
	} else {
		q.mu.Unlock()
		if err := q.wait(ctx, k); err != nil {
			return nil, err
		}
		if leads = k.state == callLeads; leads {
			q.mu.Lock()
		}
	}
	if leads {
		if q.crowd {
			for n := 0; n < len(q.waiting) && len(q.waiting) < q.room(); {
				n = len(q.waiting)
				q.yield()
			}
		}
		batch := q.take(k)
		q.mu.Unlock()
		q.lead(ctx, k, batch)
	}
	if now, passed := periodPassed(k.reply); passed {
		q.serverTime.Store(now)
	}
	return k.reply, k.err
}

// pass lets the waiting call with the latest deadline lead, or frees the leader's place.
func (q *queue) pass() {
	var next *call
	for _, w := range q.waiting {
		if w.state == callWaits && (next == nil || next.deadline.Before(w.deadline)) {
			next = w
		}
	}
	if next == nil {
		q.inFlight--
		return
	}
	next.state = callLeads
	next.turn <- struct{}{}
}

// take removes the batch that k leads from the queue, in the order of arrival.
func (q *queue) take(k *call) []*call {
	var batch []*call
	if n := len(q.free); n > 0 {
		batch, q.free = q.free[n-1], q.free[:n-1]
	}
	room, left := q.room()-1, maxBatchWeight-k.weight
	rest := q.waiting[:0]
	for _, w := range q.waiting {
		switch {
		case w == k:
			batch = append(batch, k)
		case w.state == callWaits && room > 0 && w.weight <= left && !w.deadline.After(k.deadline):
			w.state = callEncodes
			batch = append(batch, w)
			room, left = room-1, left-w.weight
		default:
			rest = append(rest, w)
		}
	}
	clear(q.waiting[len(rest):])
	q.waiting, q.sent, q.crowd = rest, append(q.sent, batch), len(batch) > 1
	if q.inFlight < maxInFlight && len(rest) > 0 {
		q.inFlight++
		q.pass()
	}
	return batch
}

// room is the most calls of a batch: half of all unanswered ones, so that the callers of one batch
// get ready while the server decides the other.
func (q *queue) room() int {
	n := len(q.waiting)
	for _, batch := range q.sent {
		n += len(batch)
	}
	return min(maxBatchCalls, max(minHalf, (n+1)/maxInFlight))
}

// lead sends a batch and answers its calls.
func (q *queue) lead(ctx context.Context, k *call, batch []*call) {
	err := ErrPanicked
	defer func() {
		q.mu.Lock()
		q.pass()
		q.sent = slices.DeleteFunc(q.sent, func(b []*call) bool { return b[0] == batch[0] })
		for _, w := range batch {
			if w.state == callEncodes || w.state == callSent {
				w.state = callAnswered
				if w.err == nil {
					w.err = err
				}
				if w.err != nil {
					w.err = follower{w.err}
				}
			}
		}
		q.mu.Unlock()
		for _, w := range batch {
			if w != k && w.state == callAnswered {
				w.turn <- struct{}{}
			}
		}
		clear(batch)
		q.mu.Lock()
		q.free = append(q.free, batch[:0])
		q.mu.Unlock()
	}()
	// One limit of a period that has passed would keep the whole batch from being decided.
	if now := q.serverTime.Load(); now != 0 {
		for _, w := range batch {
			renewPeriods(w.requests, now)
		}
	}
	if err = q.store.send(ctx, q, batch); err != nil {
		k.err = err
	}
}

// encoded says that the leader needs the requests of a batch no more.
func (q *queue) encoded(batch []*call) {
	if len(batch) == 1 {
		return
	}
	q.mu.Lock()
	for _, w := range batch {
		if w.state == callEncodes {
			w.state = callSent
		}
	}
	q.mu.Unlock()
}

// yield lets other goroutines run, without the lock.
func (q *queue) yield() {
	q.mu.Unlock()
	runtime.Gosched()
	q.mu.Lock()
}

// call is the requests of one caller on their way.
type call struct {
	requests []request.Request
	merges   bool // the one request merges with equal ones
	words    int  // of the reply
	weight   int  // words, and what the script does without telling
	deadline time.Time
	shared   *deadline.Shared // or nil

	reply []int64 // until the caller has it
	err   error
	state callState     // the queue's lock guards it
	turn  chan struct{} // is sent to when the call leads, or is answered
}

type callState uint8

const (
	callWaits   callState = iota
	callLeads             // picked, or in flight as the leader
	callEncodes           // the leader reads its requests
	callSent
	callAnswered
	callLeft
)

var calls = sync.Pool{New: func() any { return &call{turn: make(chan struct{}, 1)} }}

func acquireCall(ctx context.Context, requests []request.Request) *call {
	k := calls.Get().(*call)
	k.requests, k.words, k.weight = requests, 0, 0
	k.merges = len(requests) == 1 && mergeable(&requests[0])
	for i := range requests {
		r := &requests[i]
		k.words += r.Words()
		k.weight += r.Words()
		if r.Op == algorithm.Give {
			k.weight += len(r.Charges)
		}
	}
	var ok bool
	if k.deadline, ok = ctx.Deadline(); !ok {
		k.deadline = time.Now().Add(time.Hour) // later than any
	}
	k.shared = deadline.SharedOf(ctx)
	return k
}

// release lets the call be used again, unless its caller has left: a leader may still hold it then.
func (k *call) release() {
	if k.state != callLeft {
		k.requests, k.shared, k.reply, k.err, k.state = nil, nil, nil, nil, callWaits
		calls.Put(k)
	}
}

// brief reports whether the script may answer in one number.
func (k *call) brief() bool { return k.merges && len(k.requests[0].Charges) == 1 }

// maxMerged is the largest number of units of a charge that merges: sums of a batch stay exact.
const maxMerged = 1 << 40

// mergeable reports whether equal requests can be decided as one. Then each caller needs to know
// nothing but its reply. It doubles the throughput of a hot key and saves three quarters of the
// server's work (BenchmarkThroughput/hot).
func mergeable(r *request.Request) bool {
	if r.Op != algorithm.Decide || r.Slot != nil || r.Receipts {
		return false
	}
	for _, c := range r.Charges {
		if _, ok := c.Limit.(algorithm.Mergeable); !ok || c.Shadow || c.Units < 1 ||
			c.Units > min(maxMerged, c.Limit.Capacity()) {
			return false
		}
	}
	return true
}
