package trips

import "time"

const (
	minHalf = 4 // the most calls that always share a batch
	// maxIdle is how often a sender of a crowd lets others run and no call comes before it goes on. An
	// idle processor may take up the sender at once, before any other goroutine has run.
	maxIdle = 4
)

// send sends batches until no call waits.
func (q *queue) send() {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := new(trip)
	for want := minHalf; q.gather(want); {
		if q.senders > maxSenders && q.has(Decisions) {
			break
		}
		now := time.Now()
		t.begin(now, q.lost)
		t.waited = true
		q.take(t, max(want, q.room())) // as many as it has waited for
		q.crowd = len(t.calls) > 1
		if len(t.calls) == 0 { // the other sender took them, or what waits is for it to answer
			break
		}
		err := q.carry(q.all.Detach(t.calls[0].ctx, now, q.link.patience+q.excuse()), t)
		want = q.room()
		q.answer(t, err)
		if t.beside {
			return
		}
		if err != nil && q.node.circuit.IsOpen() { // the next probe has others go on
			break
		}
	}
	q.senders--
}

// gather lets the other goroutines of a crowd call, until as many calls wait as are wanted or none
// comes any more. It reports whether a call waits.
func (q *queue) gather(want int) bool {
	for idle := 0; q.crowd && idle < maxIdle && len(q.waiting) < want && !q.hasLongTurns(); {
		n := len(q.waiting)
		if q.yield(); len(q.waiting) == n {
			idle++
		} else {
			idle = 0
		}
	}
	return len(q.waiting) > 0
}

// room returns the batch size limit: unanswered calls divided by senders, so that the callers of
// one batch get ready while the server decides another. While decisions wait there are two parts.
// Where turns are long, a round trip takes long whatever it carries.
func (q *queue) room() int {
	if q.hasLongTurns() {
		return maxBatchCalls
	}
	n := len(q.waiting)
	for t := range q.trips {
		n += len(t.calls)
	}
	parts := maxSenders
	if !q.has(Decisions) {
		parts = max(parts, q.senders)
	}
	return min(maxBatchCalls, max(minHalf, (n+1)/parts))
}
