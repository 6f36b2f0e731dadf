package core

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	mostFlying     = 2   // batches in flight
	mostBatchCalls = 128 // in a batch: the server is busy with one for as long as with so many decisions
	mostBatchWords = 640 // of its reply, which grows with what the calls cost the server
	leastHalf      = 16  // calls that are not parted into two batches
)

// commits joins calls that wait for the same round trip. Who finds a place in flight sends at once, on a goroutine of
// his own; who comes while all places are taken waits, and when one is free leads a batch of all that wait. Nobody waits for
// others to come, but that where there is a crowd, who is ready to run runs first. There is neither a timer nor a goroutine.
//
// Nobody in a batch has a later deadline than who leads it, and he is done by his. The others leave when their own contexts
// end: uncharged if they still wait, and with an unknown outcome if they are on their way. Of deadlines that are shared, the one
// who ends them tells.
type commits struct {
	store *redisStore

	mu      sync.Mutex
	flying  int
	crowd   bool // the last batch was of several
	waiting []*call
	sent    [][]*call // batches in flight
	batches [][]*call // to be used again

	turned atomic.Int64 // when a calendar's period was found not to be that of the server, last
}

// follower is the error of a batch to those who did not lead it: one failure, and not as many as there are callers.
type follower struct{ error }

func (f follower) Unwrap() error { return f.error }

// errPanicked is what becomes of a call that does not come back, and of those who share it.
var errPanicked = errors.New("core: the call panicked")

// do returns the reply to requests. They are not used any more when it returns.
func (c *commits) do(ctx context.Context, requests []request) ([]int64, error) {
	k := calls.Get().(*call)
	k.requests, k.words = requests, words(requests)
	var ok bool
	if k.deadline, ok = ctx.Deadline(); !ok {
		k.deadline = time.Now().Add(time.Hour) // later than any
	}
	k.shared = shared(ctx)
	c.mu.Lock()
	if k.shared != nil && k.shared.passed.Load() {
		c.mu.Unlock()
		return nil, leaving(ctx)
	}
	c.waiting = append(c.waiting, k)
	leads := c.flying < mostFlying
	if leads {
		c.flying++
		k.state = callLeads
	} else {
		c.mu.Unlock()
		if err := c.wait(ctx, k); err != nil {
			return nil, err
		}
		if leads = k.state == callLeads; leads {
			c.mu.Lock()
		}
	}
	if leads {
		if c.crowd { // others are about to come, and are let in first
			for n := 0; n < len(c.waiting) && len(c.waiting) < c.room(); {
				n = len(c.waiting)
				c.yield()
			}
		}
		batch := c.take(k)
		c.mu.Unlock()
		c.lead(ctx, k, batch)
	}
	reply, err := k.reply, k.err
	if otherPeriod(reply) {
		c.turned.Store(reply[1])
	}
	k.requests, k.shared, k.reply, k.err, k.state = nil, nil, nil, nil, callWaits
	calls.Put(k)
	return reply, err
}

// pass gives a place in flight to the one who waits and has the latest deadline, or frees it.
func (c *commits) pass() {
	var next *call
	for _, w := range c.waiting {
		if w.state == callWaits && (next == nil || next.deadline.Before(w.deadline)) {
			next = w
		}
	}
	if next == nil {
		c.flying--
		return
	}
	next.state = callLeads
	next.turn <- struct{}{}
}

// take is the batch that k leads, in the order of arrival.
func (c *commits) take(k *call) []*call {
	var batch []*call
	if n := len(c.batches); n > 0 {
		batch, c.batches = c.batches[n-1], c.batches[:n-1]
	}
	room, words := c.room()-1, mostBatchWords-k.words
	rest := c.waiting[:0]
	for _, w := range c.waiting {
		switch {
		case w == k:
			batch = append(batch, k)
		case w.state == callWaits && room > 0 && w.words <= words && !w.deadline.After(k.deadline):
			w.state = callEncoded
			batch = append(batch, w)
			room, words = room-1, words-w.words
		default:
			rest = append(rest, w)
		}
	}
	clear(c.waiting[len(rest):])
	c.waiting, c.sent, c.crowd = rest, append(c.sent, batch), len(batch) > 1
	if c.flying < mostFlying && len(rest) > 0 { // they need not wait for this one
		c.flying++
		c.pass()
	}
	return batch
}

// room is for how many calls a batch has room: half of all that are not answered yet, so that those of one batch get ready again
// while the server decides the other, unless that is too few to be worth a script.
func (c *commits) room() int {
	n := len(c.waiting)
	for _, batch := range c.sent {
		n += len(batch)
	}
	return min(mostBatchCalls, max(leastHalf, (n+1)/mostFlying))
}

// lead sends a batch and answers it.
func (c *commits) lead(ctx context.Context, k *call, batch []*call) {
	err := errPanicked
	defer func() { // also where a hook of the client panics
		c.mu.Lock()
		c.pass()
		c.sent = slices.DeleteFunc(c.sent, func(b []*call) bool { return b[0] == batch[0] })
		for _, w := range batch {
			if w.state == callEncoded || w.state == callSent {
				w.state = callAnswered
				if w.err == nil {
					w.err = err
				}
				if w.err != nil {
					w.err = follower{w.err}
				}
			}
		}
		c.mu.Unlock()
		for _, w := range batch {
			if w != k && w.state == callAnswered {
				w.turn <- struct{}{}
			}
		}
		clear(batch)
		c.mu.Lock()
		c.batches = append(c.batches, batch[:0])
		c.mu.Unlock()
	}()
	c.freshen(batch)
	if err = c.store.send(ctx, c, batch); err != nil {
		k.err = err
	}
}

// freshen brings the calls of a batch to the periods that the server was in when it was last found to be in others: one who
// began before a period did keeps all that share his script from being decided.
func (c *commits) freshen(batch []*call) {
	if now := c.turned.Load(); now != 0 {
		for _, k := range batch {
			renew(k.requests, now)
		}
	}
}

// free says that the requests of a batch are needed no more.
func (c *commits) free(batch []*call) {
	if len(batch) == 1 {
		return
	}
	c.mu.Lock()
	for _, w := range batch {
		if w.state == callEncoded {
			w.state = callSent
		}
	}
	c.mu.Unlock()
}

// yield lets others run, without the lock.
func (c *commits) yield() {
	c.mu.Unlock()
	runtime.Gosched()
	c.mu.Lock()
}
