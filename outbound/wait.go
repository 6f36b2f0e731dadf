package outbound

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/core/semaphore"
)

// waiting is the time that a request has for finding room, and what it holds meanwhile.
type waiting struct {
	until time.Time // or zero if it waits for nothing
	cause error     // why until is no later, or nil

	lease  *semaphore.Lease
	line   *line         // whose head it is, or nil
	since  time.Time     // when it began to wait, or zero
	waited time.Duration // before
}

// mayWait lets the request wait for at most that long, which its deadline may shorten.
func (x *exchange) mayWait(longest time.Duration) {
	if longest == 0 {
		return
	}
	x.until = time.Now().Add(longest)
	if at, ok := x.req.Context().Deadline(); ok && at.Before(x.until) {
		x.until, x.cause = at, context.DeadlineExceeded
	}
}

// left returns how much time is left.
func (x *exchange) left() time.Duration {
	if x.until.IsZero() {
		return 0
	}
	return max(0, time.Until(x.until))
}

// begin notes that the request begins to wait.
func (x *exchange) begin(rule string, expected time.Duration) {
	if !x.since.IsZero() {
		return
	}
	x.since = time.Now()
	x.t.waiting.Add(1)
	if x.t.cfg.Observe != nil {
		x.t.cfg.Observe(x.req.Context(), &WaitEvent{Request: x.given, Rule: rule, For: expected})
	}
}

// end notes that the request does not wait any more, whatever came of it, and gives back what it holds.
func (x *exchange) end() {
	x.leave()
	x.release()
	if !x.since.IsZero() {
		x.t.waiting.Add(-1)
		x.waited += time.Since(x.since)
		x.since = time.Time{}
	}
}

// release gives the slot back, if there is one.
func (x *exchange) release() {
	_ = x.lease.Release(x.req.Context()) // on failure it is sent again
	x.lease = nil
}

// leave leaves the line, and lets the next one be its head.
func (x *exchange) leave() {
	if x.line != nil {
		<-x.line.head
		x.t.lines.leave(x.line)
		x.line = nil
	}
}

// behind waits behind the requests of this process that wait already, so that it overtakes none.
func (x *exchange) behind() error {
	if x.line != nil || x.left() == 0 {
		return nil
	}
	key, ok := x.t.lines.of(x.charges[:len(x.ruled)])
	if !ok {
		return nil
	}
	_, err := x.standFor(key, 0)
	return err
}

// forRoom waits until it may help to ask again, or returns the error if the wait would be too long.
func (x *exchange) forRoom(e *BusyError) error {
	switch {
	case e.rank == byNothing:
		return nil
	case e.Spent || e.rank == bySlot || e.After > x.left():
		return x.busy(e)
	case e.rank == byCooldown:
		return x.forCooldown(e)
	}
	others, err := x.standFor(e.on, e.After)
	if others || err != nil {
		return err
	}
	return x.sleep(e.After)
}

// longestSpread is the time after the end of a cooldown in which the requests that have waited for
// it go on. It leaves a tenth of the first second for the way to Redis.
const longestSpread = 900 * time.Millisecond

// forCooldown waits for the end of a cooldown, and then at random for a part of the spread. It gives
// the slot and the place in a line back before.
func (x *exchange) forCooldown(e *BusyError) error {
	x.t.guessed.add(e.on.key)
	x.leave()
	x.release()
	x.begin(coolingName, e.rest)
	return x.sleep(min(e.rest+rand.N(min(e.rest, longestSpread)), x.left()))
}

// standFor waits in the line of a key until the request is its head, or its time is over. It reports
// whether others stood there.
func (x *exchange) standFor(key lineKey, expected time.Duration) (others bool, err error) {
	if x.line != nil && x.line.key == key {
		return false, nil
	}
	x.leave()
	in, others := x.t.lines.enter(key)
	x.begin(key.policy.Name(), expected)
	timer := time.NewTimer(x.left())
	defer timer.Stop()
	select {
	case in.head <- struct{}{}:
		x.line = in
		return others, nil
	case <-timer.C: // the last question tells when there may be room
	case <-x.req.Context().Done():
		err = wrapped(x.req.Context().Err())
	}
	x.t.lines.leave(in)
	return true, err
}

// sleep waits for that long, or until the slot is lost: then it is time to ask again.
func (x *exchange) sleep(d time.Duration) error {
	ctx := x.req.Context()
	if x.lease != nil {
		ctx = x.lease.Context()
	}
	err := x.t.hub.Keeper.Sleep(ctx, d)
	switch {
	case err == nil:
		return nil
	case x.lease != nil && errors.Is(context.Cause(ctx), semaphore.ErrLeaseLost):
		x.release()
		return nil
	}
	return wrapped(err)
}
