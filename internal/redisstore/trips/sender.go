package trips

import (
	"slices"
	"time"
)

const (
	maxBatchCalls  = 128 // the server does nothing else while it runs a batch
	maxBatchWeight = 640 // the sum of weights, which grows with the work of the server

	// MaxOperationWeight is the most that an operation may weigh, however much work it is. A batch
	// spares as much for operations.
	MaxOperationWeight = maxBatchWeight / 4
)

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
		err := q.carry(q.all.Detach(t.calls[0].ctx, now, q.node.link.patience+q.delay()), t)
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

// take moves the next batch, of at most room calls, to a trip: decisions first, then operations,
// each in the order of their arrival. If both wait, a quarter of the batch is for operations, so
// that neither waits for all of the other. A release does not overtake the acquire of its slot.
func (q *queue) take(t *trip, room int) {
	weight := 0
	pick := func(lane Lane, room, spare int) {
		for _, k := range q.waiting {
			if room > 0 && k.Lane == lane && !q.stray(k.Releases) &&
				(weight+k.Weight <= maxBatchWeight-spare || len(t.calls) == 0) {
				k.state = statePacked
				t.calls = append(t.calls, k)
				room, weight = room-1, weight+k.Weight
			}
		}
	}
	if q.has(Operations) {
		pick(Decisions, max(1, room-room/4), MaxOperationWeight)
		weight = min(weight, maxBatchWeight-MaxOperationWeight) // one call may weigh more
		pick(Operations, max(1, room-len(t.calls)), 0)
	} else {
		pick(Decisions, room, 0)
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(k *Call) bool { return k.state != stateWaits })
}

// has reports whether a call of that lane waits.
func (q *queue) has(lane Lane) bool {
	return slices.ContainsFunc(q.waiting, func(k *Call) bool { return k.Lane == lane })
}

// stray reports whether the acquire of one of these ids is still on its way.
func (q *queue) stray(ids []string) bool {
	if len(q.strays) == 0 {
		return false
	}
	return slices.ContainsFunc(ids, func(id string) bool {
		_, ok := q.strays[id]
		return ok
	})
}

// remove takes a call out of the line, if it waits there.
func (q *queue) remove(k *Call) {
	if i := slices.Index(q.waiting, k); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
}
