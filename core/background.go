package core

import (
	"context"
	"iter"
	"time"

	"github.com/headgate/headgate/internal/line"
)

type backgroundKey struct{}

// WithBackground returns a context of background work: of what can wait, such as a bulk job. What waits
// with it lets foreground work go first: in Limiter.Wait, in Gate.Reserve, in the queue of a semaphore,
// where a Guard delays a request, and in package outbound. All other contexts are foreground.
//
// Background work reserves nothing until half of its patience is over, which is its time until the
// deadline or the longest wait that it names. Until then it asks again when there is room, one caller
// of each process and key at a time, in the order of arrival. After that it reserves and queues as
// foreground work does, so that it does not starve. What cannot be served in time may be denied only
// then. Without a deadline it has no half: it waits as long as foreground work leaves no room. Each
// question is a DecisionEvent.
func WithBackground(ctx context.Context) context.Context {
	return context.WithValue(ctx, backgroundKey{}, true)
}

// WithForeground returns a context that is not one of background work, for what is urgent within that.
func WithForeground(ctx context.Context) context.Context {
	return context.WithValue(ctx, backgroundKey{}, false)
}

// IsBackground reports whether ctx is that of background work.
func IsBackground(ctx context.Context) bool {
	background, _ := ctx.Value(backgroundKey{}).(bool)
	return background
}

// yieldsUntil returns when half of a patience is over, or the zero time for foreground work.
func yieldsUntil(ctx context.Context, patience time.Duration) time.Time {
	if patience <= 0 || !IsBackground(ctx) {
		return time.Time{}
	}
	return time.Now().Add(patience / 2)
}

// lineKey is what background work waits for.
type lineKey struct {
	policy *Policy
	key    Key
}

func lineKeys(charges []Charge) iter.Seq[lineKey] {
	return func(yield func(lineKey) bool) {
		for _, c := range charges {
			if !yield(lineKey{c.Policy, c.Key}) {
				return
			}
		}
	}
}

// longestStart bounds the head start of foreground callers where nothing can be reserved: a hundredth of
// the wait, and enough for a round trip.
const longestStart = 10 * time.Millisecond

// yield is reserve for background work: until a time, it reserves only what may act at once. It waits
// also for limits that cannot be reserved, if asked.
func (g *Gate) yield(
	ctx context.Context, until time.Time, maxWait time.Duration, all, holds bool, charges []Charge,
) (r *Reservation, d Decision, err error) {
	var place *line.Place[lineKey]
	defer func() { place.Leave() }()
	for ends := time.Now().Add(maxWait); err == nil; {
		left := time.Until(until)
		if left <= 0 {
			return g.reserve(ctx, max(0, time.Until(ends)), holds, charges)
		}
		if place == nil {
			place = g.lines.Behind(lineKeys(charges))
		}
		if place != nil && !place.IsHead() {
			err = g.lent.Keeper.Await(ctx, left, place.Head())
			continue
		}
		r, d, err = g.reserve(ctx, 0, holds, charges)
		wait := d.RetryAfter()
		if err != nil || r != nil || wait > time.Until(ends) {
			return r, d, err
		}
		at, defers := d.denier()
		switch {
		case !defers && !all:
			return nil, d, nil
		case !defers: // foreground callers ask when there is room
			wait += min(wait/100, longestStart)
		}
		if on := (lineKey{charges[at].Policy, charges[at].Key}); !place.In(on) {
			place.Leave()
			place = g.lines.Enter(on)
		}
		if place.IsHead() {
			err = g.lent.Keeper.Sleep(ctx, min(wait, left))
		}
	}
	return nil, Decision{}, err
}

// denier returns the charge that denies for the longest, and whether all that deny could be reserved for
// later.
func (d *Decision) denier() (at int, defers bool) {
	longest := time.Duration(-1)
	defers = true
	for i := range d.n {
		r := d.at(i)
		if !r.denies() {
			continue
		}
		defers = defers && r.defers
		if r.RetryAfter > longest {
			at, longest = i, r.RetryAfter
		}
	}
	return at, defers
}
