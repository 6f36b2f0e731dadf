package outbound

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/line"
)

// patience is how long a request may wait.
type patience struct {
	until time.Time
	cause error // why until is no later, or nil
	// yields is until when a request of background work reserves nothing for later. It is zero for others.
	yields time.Time
}

// patienceOf lets a request wait for at most that long, which its deadline may shorten.
func patienceOf(req *http.Request, longest time.Duration) (p patience) {
	p.until = time.Now().Add(longest)
	if at, ok := req.Context().Deadline(); ok && at.Before(p.until) {
		p.until, p.cause = at, context.DeadlineExceeded
	}
	if core.IsBackground(req.Context()) {
		p.yields = time.Now().Add(time.Until(p.until) / 2)
	}
	return p
}

// left returns how much time is left.
func (p *patience) left() time.Duration { return max(0, time.Until(p.until)) }

// yielding reports whether the request lets others go first.
func (p *patience) yielding() bool { return time.Now().Before(p.yields) }

// stirs returns when the request is to ask again at the latest.
func (p *patience) stirs() time.Duration {
	if p.yielding() {
		return min(time.Until(p.yields), p.left())
	}
	return p.left()
}

// waiting is what a request holds while it finds room.
type waiting struct {
	patience
	lease  *semaphore.Lease
	place  *line.Place[lineKey] // the head of a line, or nil
	since  time.Time            // when it began to wait, or zero
	waited time.Duration        // before
}

// context returns that of the request, in the foreground once it does not yield any more.
func (x *delivery) context() context.Context {
	if x.yields.IsZero() || x.yielding() {
		return x.req.Context()
	}
	return core.WithForeground(x.req.Context())
}

// begin notes that the request begins to wait.
func (x *delivery) begin(rule string, expected time.Duration) {
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
func (x *delivery) end() {
	x.leave()
	x.release()
	if !x.since.IsZero() {
		x.t.waiting.Add(-1)
		x.waited += time.Since(x.since)
		x.since = time.Time{}
	}
}

// release gives the slot back, if there is one.
func (x *delivery) release() {
	_ = x.lease.Release(x.req.Context()) // on failure it is sent again
	x.lease = nil
}

// leave leaves the line, and lets the next one be its head.
func (x *delivery) leave() {
	x.place.Leave()
	x.place = nil
}

// lineKey is what the requests of a line wait for: room in a window, which serves no one in order, or, in
// the background, room of any kind.
type lineKey struct {
	policy     *core.Policy
	key        core.Key
	background bool
}

// behind waits behind the requests of this process that wait already, so that it overtakes none.
func (x *delivery) behind() error {
	if x.place != nil || x.left() == 0 {
		return nil
	}
	place := x.t.lines.Behind(func(yield func(lineKey) bool) {
		for _, c := range x.charges[:len(x.ruled)] {
			if !yield(lineKey{c.Policy, c.Key, x.yielding()}) {
				return
			}
		}
	})
	if place == nil {
		return nil
	}
	_, err := x.stand(place, 0)
	return err
}

// forRoom waits until it may help to ask again, or returns the error if the wait would be too long.
func (x *delivery) forRoom(e *BusyError) error {
	switch {
	case e.rank == byNothing:
		return nil
	case e.Spent || e.rank == bySlot || e.After > x.left():
		return x.busy(e)
	case e.rank == byCooldown:
		return x.forCooldown(e)
	}
	if x.yielding() {
		x.release()
	}
	if !x.place.In(e.on) {
		x.leave()
		others, err := x.stand(x.t.lines.Enter(e.on), e.After)
		if others || err != nil {
			return err
		}
	}
	wait := e.After
	if x.yielding() { // where nothing can be reserved, others ask at that time
		wait = min(wait+min(wait/100, longestStart), x.stirs())
	}
	return x.sleep(wait)
}

// longestStart bounds for how much longer a request of background work waits than others.
const longestStart = 10 * time.Millisecond

// longestSpread is the time after the end of a cooldown in which the requests that have waited for
// it go on. It leaves a tenth of the first second for the way to Redis.
const longestSpread = 900 * time.Millisecond

// forCooldown waits for the end of a cooldown, and then at random for a part of the spread. It gives
// the slot and the place in a line back before.
func (x *delivery) forCooldown(e *BusyError) error {
	x.t.guessed.add(e.on.key)
	x.leave()
	x.release()
	x.begin(coolingName, e.rest)
	return x.sleep(min(e.rest+rand.N(min(e.rest, longestSpread)), x.left()))
}

// stand waits at a place until that is the head of its line, or it is time to ask again. It reports
// whether others stood before it.
func (x *delivery) stand(place *line.Place[lineKey], expected time.Duration) (others bool, err error) {
	others = !place.IsHead()
	x.begin(place.Key().policy.Name(), expected)
	select {
	case <-place.Head():
		x.place = place
		return others, nil
	case <-time.After(x.stirs()): // the last question tells when there may be room
	case <-x.req.Context().Done():
		err = wrapped(x.req.Context().Err())
	}
	place.Leave()
	return true, err
}

// sleep waits for that long, or until the slot is lost: then it is time to ask again.
func (x *delivery) sleep(d time.Duration) error {
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
