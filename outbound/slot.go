package outbound

import (
	"context"
	"errors"
	"sync"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/keeper"
	"github.com/headgate/headgate/internal/lease"
)

// Slot caps how many requests run at a time, from the moment a request is sent until the body of
// its response has been read to the end, was closed or broke off, or the context of the request has
// ended; the body of a refusal may have ended before the caller reads it. If a slot is evicted, its
// request is cancelled. An outage of Redis ends no request: it takes a slot again when Redis answers
// and there is room.
//
// A request that waits for a rule holds its slot meanwhile. So give a cap the key of the rule, or a
// part of that: requests that wait for one model's rule then take no slots of another model.
type Slot struct {
	// Semaphore keeps the slots. It is required, and must be of Config.Gate. Its MaxWaiters bounds how
	// many requests of all replicas wait.
	Semaphore *semaphore.Semaphore
	// Caps are the caps, outermost first, such as account and model. There are 1 to 8. A request takes
	// a slot of every cap, or none. Their keys share the outermost part.
	Caps []Cap
}

// Cap is one cap of a Slot.
type Cap struct {
	// Key derives whose cap it is, such as ByCredential. It is required.
	Key KeyFunc
	// Limit is the number of requests of one key that may run at a time, at least 1.
	Limit int64
	// Share and Floor divide the room of the cap before this one among the keys that wait there; see
	// semaphore.Cap. The first cap has neither.
	Share, Floor int64
}

// maxCaps is the most caps that a semaphore takes.
const maxCaps = 8

func (s *Slot) check(gate *core.Gate, fault faultFunc) {
	if s.Semaphore == nil {
		fault("Slot.Semaphore is nil")
	} else if gate != nil && s.Semaphore.Gate() != gate {
		fault("Slot.Semaphore is of another Gate")
	}
	within(fault, "Slot.Caps's length", len(s.Caps), 1, maxCaps)
	for i, c := range s.Caps {
		if c.Key == nil {
			fault("Slot.Caps[%d].Key is nil: say whose cap it is, such as ByCredential", i)
		}
		l := lease.Level{Limit: c.Limit, Share: c.Share, Floor: c.Floor}
		for _, text := range l.Faults(i == 0) {
			fault("Slot.Caps[%d].%s", i, text)
		}
	}
}

// slot is that of a request that is sent.
type slot struct {
	mu      sync.Mutex
	lease   *semaphore.Lease // or nil
	unwatch func() bool      // ends the watch of the lease
	over    bool
}

// lost reports whether a lease is lost. A nil one is not.
func lost(l *semaphore.Lease) bool {
	return errors.Is(context.Cause(l.Context()), semaphore.ErrLeaseLost)
}

// keep makes a lease that of the request, and watches it until the slot is released. One that Redis does
// not know lasts until it has granted another.
func (p *pass) keep(l *semaphore.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		p.giveBack(l)
		return
	}
	if p.lease != nil {
		p.unwatch()
		p.giveBack(p.lease)
	}
	p.lease = l
	ctx := l.Context()
	p.unwatch = context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !lost(l) || errors.Is(cause, keeper.ErrEnded) {
			p.stop(cause)
			return
		}
		p.x.t.hub.Tasks.Go(p.retake)
	})
	if l.Token() == 0 {
		p.x.t.hub.Tasks.Go(p.retake)
	}
}

// giveBack releases a lease in the background.
func (p *pass) giveBack(l *semaphore.Lease) {
	p.x.t.hub.Tasks.Go(func() { _ = l.Release(p.req.Context()) }) // on failure it is sent again
}

// outermost returns that part of the keys of the slot.
func (x *delivery) outermost() string { return inside.Outermost(x.caps[0].Key) }

// retake takes another slot for a request that goes on without one that Redis knows. It asks until Redis
// has granted one, or the request has ended. It does not wait in the queue while those that do let it go
// first.
func (p *pass) retake() {
	ctx, x := p.req.Context(), p.x
	for {
		if x.t.hub.Keeper.Asks(ctx, x.outermost()) {
			wait := outageRetry
			if x.t.hub.Keeper.Settles(ctx, x.outermost()) > 0 {
				wait = 0
			}
			var l *semaphore.Lease
			_ = breaker.Safely(func() (err error) {
				l, err = x.t.cfg.Slot.Semaphore.Acquire(ctx, semaphore.Request{Caps: x.caps, MaxWait: wait})
				return err
			})
			if l.Token() != 0 {
				p.keep(l)
				return
			}
			_ = l.Release(ctx) // on failure it is sent again
		}
		if x.t.hub.Keeper.Sleep(ctx, turn) != nil {
			return
		}
	}
}

// release gives the slot back in the background.
func (p *pass) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || p.lease == nil {
		return
	}
	p.over = true
	p.unwatch()
	p.stop(context.Canceled)
	p.giveBack(p.lease)
}
