package redisstore

import (
	"context"
	"slices"

	"github.com/headgate/headgate/internal/deadline"
)

// wait returns when the call leads or is answered, or with the error of the context that ended
// first. The call must not be used again then.
func (q *queue) wait(ctx context.Context, k *call) error {
	var done <-chan struct{}
	if k.shared == nil {
		done = ctx.Done()
	} // otherwise expire tells: a channel that all callers wait for is dear
	gone := deadline.CallerDone(ctx)
	if done == nil && gone == nil {
		<-k.turn
	} else {
		select {
		case <-k.turn:
		case <-done:
			q.leave(k)
		case <-gone:
			q.leave(k)
		}
	}
	if k.state == callLeft {
		return deadline.Cause(ctx)
	}
	return nil
}

// leave takes back a call, unless it is answered.
func (q *queue) leave(k *call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for k.state == callEncodes {
		q.yield()
	}
	switch k.state {
	case callAnswered, callLeft: // it was told just now
		<-k.turn
		return
	case callWaits:
		q.remove(k)
	case callLeads:
		q.remove(k)
		q.pass()
	}
	k.state = callLeft
}

// expire takes back the calls whose shared deadline has passed.
func (q *queue) expire(d *deadline.Shared) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for encodes := true; encodes; {
		encodes = false
		end := func(k *call) {
			switch {
			case k.shared != d:
			case k.state == callEncodes:
				encodes = true
			case k.state == callWaits || k.state == callSent:
				k.state = callLeft
				k.turn <- struct{}{}
			}
		}
		for _, batch := range q.sent {
			for _, k := range batch {
				end(k)
			}
		}
		q.waiting = slices.DeleteFunc(q.waiting, func(k *call) bool {
			end(k)
			return k.state == callLeft
		})
		if encodes {
			q.yield()
		}
	}
}

func (q *queue) remove(k *call) {
	if i := slices.Index(q.waiting, k); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
}
