package redisstore

import (
	"slices"
	"time"

	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/request"
)

// take removes the next batch from the queue: decisions first, then operations on leases, each in
// the order of their arrival. If both wait, a quarter of the batch is for leases, so that
// neither waits for all of the other. A release does not overtake the acquire of its slot.
func (q *queue) take() *trip {
	t := q.newTrip()
	room, left := q.room(), maxBatchWeight
	pick := func(leases bool, room, spare int) {
		for _, k := range q.waiting {
			if room > 0 && k.isOwn() == leases && !q.stray(k.releases) &&
				(k.weight <= left-spare || len(t.calls) == 0) {
				k.state = callEncodes
				t.calls = append(t.calls, k)
				room, left = room-1, left-k.weight
			}
		}
	}
	if slices.ContainsFunc(q.waiting, (*call).isOwn) {
		pick(false, max(1, room-room/4), maxBatchWeight/4)
		pick(true, max(1, room-len(t.calls)), 0)
	} else {
		pick(false, room, 0)
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(k *call) bool { return k.state != callWaits })
	q.crowd = len(t.calls) > 1
	return t
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

// left says that the caller of a call that may be sent has left.
func (q *queue) left(k *call, why error) {
	switch {
	case k.state == callWaits:
		why = request.Unsent{Err: why}
	case k.state == callSent && k.acquires != "":
		q.strays[k.acquires] = struct{}{}
	}
	k.state, k.why = callLeft, why
}

// leave takes back a call whose caller's context has ended, unless it is answered.
func (q *queue) leave(k *call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for k.state == callEncodes {
		q.yield()
	}
	if k.state == callAnswered || k.state == callLeft { // it was told just now
		<-k.told
		return
	}
	if i := slices.Index(q.waiting, k); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	q.left(k, k.ctx.Err())
}

// rest keeps a sender from asking a server again and again that is known to fail.
func (q *queue) rest() {
	reopens := q.reopens
	if reopens == nil {
		return
	}
	q.mu.Unlock()
	defer q.mu.Lock()
	pause := time.NewTimer(breaker.Pause)
	defer pause.Stop()
	select {
	case <-reopens:
	case <-pause.C:
	}
}

// opened and closed say that the breaker has.
func (q *queue) opened() {
	q.mu.Lock()
	if q.reopens == nil {
		q.reopens = make(chan struct{})
	}
	q.mu.Unlock()
	q.end()
}

func (q *queue) closed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.reopens != nil {
		close(q.reopens)
		q.reopens = nil
	}
}
