package outbound

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
)

// wait is the time that a request has for finding room, and what it holds meanwhile.
type wait struct {
	x     *exchange
	until time.Time // or zero if it waits for nothing
	cause error     // why until is no later, or nil

	lease *semaphore.Lease
	place *place
	since time.Time // when it began to wait, or zero
}

// newWait returns a wait of at most that long, which the deadline of the request may shorten.
func (x *exchange) newWait(longest time.Duration) *wait {
	w := &x.wait
	if w.x = x; longest == 0 {
		return w
	}
	w.until = time.Now().Add(longest)
	if at, ok := x.req.Context().Deadline(); ok && at.Before(w.until) {
		w.until, w.cause = at, context.DeadlineExceeded
	}
	return w
}

// left returns how much time is left.
func (w *wait) left() time.Duration {
	if w.until.IsZero() {
		return 0
	}
	return max(0, time.Until(w.until))
}

// begin notes that the request begins to wait.
func (w *wait) begin(rule string, expected time.Duration) {
	if !w.since.IsZero() {
		return
	}
	w.since = time.Now()
	w.x.t.waiting.Add(1)
	if w.x.t.cfg.Observe != nil {
		e := &WaitEvent{Request: w.x.given, Rule: rule, For: expected}
		w.x.t.observe(w.x.req.Context(), e)
	}
}

// end notes that the request does not wait any more, whatever came of it.
func (w *wait) end() {
	w.leave()
	if !w.since.IsZero() {
		w.x.t.waiting.Add(-1)
		w.x.waited += time.Since(w.since)
		w.since = time.Time{}
	}
}

// release gives the slot back, if there is one.
func (w *wait) release() {
	_ = w.lease.Release(w.x.req.Context()) // on failure it is sent again
	w.lease = nil
}

// leave leaves the line.
func (w *wait) leave() {
	w.x.t.lines.leave(w.place)
	w.place = nil
}

// busy completes the error of a request that would have to wait for too long.
func (w *wait) busy(e *BusyError) error {
	if e.Cause == nil && !e.Spent && e.After != core.Never {
		e.Cause = w.cause
	}
	return e
}

// behind waits behind the requests of this process that wait already, so that it overtakes none.
func (w *wait) behind() error {
	if w.place != nil || w.left() == 0 {
		return nil
	}
	key, ok := w.x.t.lines.first(w.x.charges[len(w.x.asks):])
	if !ok {
		return nil
	}
	w.place = w.x.t.lines.enter(key)
	_, err := w.forHead(key.policy.Name(), 0)
	return err
}

// forRoom waits until it may help to ask again, or returns a BusyError if the wait would be too
// long.
func (w *wait) forRoom(n *denial) error {
	switch {
	case n.rank == byNothing:
		return nil
	case n.rank == bySpent || n.after > w.left():
		e := busyFor(n.rule(), n.after)
		e.Spent = n.rank == bySpent
		e.Cause = n.cause
		return w.busy(e)
	case n.rank == byCooldown:
		return w.forCooldown(n)
	}
	if w.place == nil || w.place.line.key != n.on {
		w.leave()
		w.place = w.x.t.lines.enter(n.on)
	}
	stood, err := w.forHead(n.rule(), n.after)
	if err != nil || stood {
		return err
	}
	return w.sleep(n.after)
}

// longestSpread is the time after the end of a cooldown in which the requests that have waited for
// it go on. It leaves a tenth of the first second for the way to Redis.
const longestSpread = 900 * time.Millisecond

// forCooldown waits for the end of a cooldown, and then at random for a part of the spread. It gives
// the slot and the place in a line back before.
func (w *wait) forCooldown(n *denial) error {
	w.x.t.cool.guessed.add(n.on.key, time.Now())
	w.leave()
	w.release()
	w.begin(coolingName, n.rest)
	return w.sleep(min(n.rest+rand.N(min(n.rest, longestSpread)), w.left()))
}

// forHead waits until the request is the head of its line, or its time is over, and reports whether
// it was not the head before.
func (w *wait) forHead(rule string, expected time.Duration) (stood bool, err error) {
	w.begin(rule, expected)
	select {
	case <-w.place.head:
		return false, nil
	default:
	}
	ctx := w.x.req.Context()
	timer := time.NewTimer(w.left())
	defer timer.Stop()
	select {
	case <-w.place.head:
	case <-timer.C: // the last question tells when there may be room
	case <-ctx.Done():
		return true, wrapped(ctx.Err())
	}
	return true, nil
}

// sleep waits for that long, or until the slot is lost: then it is time to ask again.
func (w *wait) sleep(d time.Duration) error {
	ctx := w.x.req.Context()
	if w.lease != nil {
		ctx = w.lease.Context()
	}
	err := w.x.t.keeper.Sleep(ctx, d)
	switch {
	case err == nil:
		return nil
	case w.lease != nil && errors.Is(context.Cause(ctx), semaphore.ErrLeaseLost):
		w.release()
		return nil
	}
	return wrapped(err)
}
