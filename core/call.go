package core

import (
	"context"
	"slices"
	"sync"
	"time"
)

// call is requests of one caller.
type call struct {
	requests []request
	deadline time.Time
	shared   *sharedDeadline // or nil
	words    int             // of the reply
	reply    []int64         // until the caller has it
	err      error

	state callState     // by the lock of commits
	turn  chan struct{} // told when the call leads, or is answered
}

type callState uint8

const (
	callWaits   callState = iota
	callLeads             // picked, or in flight as the leader
	callEncoded           // is being encoded: its requests are read by another goroutine
	callSent
	callAnswered
	callLeft
)

var calls = sync.Pool{New: func() any { return &call{turn: make(chan struct{}, 1)} }}

// wait returns when the call leads or is answered, or with the error of the context that ended before. The call is not to be
// used again then: a leader may still hold it.
func (c *commits) wait(ctx context.Context, k *call) error {
	var done <-chan struct{}
	if k.shared == nil {
		done = ctx.Done()
	} // else expire tells: a channel that all wait for costs more than the rest of waiting
	gone := left(ctx)
	if done == nil && gone == nil {
		<-k.turn
	} else {
		select {
		case <-k.turn:
		case <-done:
			c.leave(k)
		case <-gone:
			c.leave(k)
		}
	}
	if k.state == callLeft {
		return leaving(ctx)
	}
	return nil
}

// leave takes back a call, unless it is answered.
func (c *commits) leave(k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k.state == callEncoded {
		c.yield()
	}
	switch k.state {
	case callAnswered, callLeft: // told of just now
		<-k.turn
		return
	case callWaits:
		c.remove(k)
	case callLeads:
		c.remove(k)
		c.pass()
	}
	k.state = callLeft
}

// expire takes back the calls whose shared deadline has passed.
func (c *commits) expire(d *sharedDeadline) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for encoded := true; encoded; {
		encoded = false
		end := func(k *call) {
			switch {
			case k.shared != d:
			case k.state == callEncoded:
				encoded = true
			case k.state == callWaits || k.state == callSent:
				k.state = callLeft
				k.turn <- struct{}{}
			}
		}
		for _, batch := range c.sent {
			for _, k := range batch {
				end(k)
			}
		}
		c.waiting = slices.DeleteFunc(c.waiting, func(k *call) bool {
			end(k)
			return k.state == callLeft
		})
		if encoded {
			c.yield()
		}
	}
}

func (c *commits) remove(k *call) {
	for i, w := range c.waiting {
		if w == k {
			c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
			return
		}
	}
}

// words is the length of the reply to requests.
func words(requests []request) (n int) {
	for i := range requests {
		r := &requests[i]
		n++
		if r.op == algorithmGive {
			continue
		}
		for j := range r.charges {
			n += r.charges[j].limit.Fields()
		}
	}
	return n
}
