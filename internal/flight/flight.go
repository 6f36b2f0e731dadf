// Package flight calls others' code in the background, such as the ledger of a key: once for all
// callers that need the same key at the same time. Calls that hang hold up those for no other key.
package flight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/deadline"
)

const (
	quickCalls = 32     // of one owner at a time
	slowCalls  = 256    // of one owner that have taken longer than Config.Long
	mostKeys   = 16_384 // of one owner, that are called for or wait for their turn
)

// Config configures a Group. All fields are required.
type Config struct {
	Tasks *breaker.Tasks // run the calls
	// Long is after what time a call counts as slow, and gives its place to another.
	Long time.Duration
	// Turn is how long a call waits for its turn.
	Turn time.Duration
	// Pause is for how long an error that wraps Failed is the outcome for its key.
	Pause time.Duration
	// Failed is wrapped by the errors of calls that do not get their turn in time, or do not return.
	Failed error
	// Closed is the error of calls that wait for their turn while the Group is closed.
	Closed error
}

// Group is calls by key. It is safe for concurrent use. New makes it.
type Group struct {
	cfg    Config
	pulse  deadline.Pulse // beats while callers wait
	closed context.Context
	close  context.CancelFunc

	mu     sync.Mutex
	calls  map[string]*Call
	owners map[any]*owner
}

// Call is one call.
type Call struct {
	done chan struct{} // closed when err is set
	err  error
}

// owner is what bounds the calls of one owner.
type owner struct {
	keys, slow int // the lock of the Group guards them
	places     chan struct{}
}

// New returns a Group without calls.
func New(cfg Config) *Group {
	g := &Group{
		cfg: cfg, calls: make(map[string]*Call), owners: make(map[any]*owner),
		pulse: deadline.Pulse{Every: 10 * time.Millisecond},
	}
	g.closed, g.close = context.WithCancel(context.Background())
	return g
}

// Close ends the contexts of all calls. It does not wait for them.
func (g *Group) Close() { g.close() }

// Call begins a call for a key, unless one runs or has failed just now. Keys of one owner are bounded
// together. The call has the values of ctx, and its context ends with the Group.
func (g *Group) Call(
	ctx context.Context, who any, key string, f func(context.Context) error,
) *Call {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.calls[key]; c != nil {
		return c
	}
	c, o := &Call{done: make(chan struct{})}, g.owners[who]
	switch {
	case o == nil:
		o = &owner{places: make(chan struct{}, quickCalls)}
		g.owners[who] = o
	case o.keys >= mostKeys:
		c.err = fmt.Errorf("%w: %d keys wait", g.cfg.Failed, mostKeys)
		close(c.done)
		return c
	}
	o.keys++
	g.calls[key] = c
	ctx = context.WithoutCancel(ctx)
	g.cfg.Tasks.Go(func() {
		defer g.end(c, who, key)
		c.err = fmt.Errorf("%w: the call did not return", g.cfg.Failed) // as after runtime.Goexit
		c.err = g.run(ctx, o, f)
	})
	return c
}

// run calls f when it is its turn. A panic is an error.
func (g *Group) run(ctx context.Context, o *owner, f func(context.Context) error) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.closed, cancel)()
	turn := time.NewTimer(g.cfg.Turn)
	defer turn.Stop()
	select {
	case o.places <- struct{}{}:
	case <-turn.C:
		return fmt.Errorf("%w: %d calls run", g.cfg.Failed, quickCalls)
	case <-ctx.Done():
		return g.cfg.Closed
	}
	p := &place{group: g, owner: o, holds: true}
	defer p.leave()
	if g.closed.Err() != nil { // both at once
		return g.cfg.Closed
	}
	defer time.AfterFunc(g.cfg.Long, p.slow).Stop()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: panic: %v", g.cfg.Failed, v)
		}
	}()
	return f(ctx)
}

// end lets the next caller call again, after a failure a while later, and tells those that wait.
func (g *Group) end(c *Call, who any, key string) {
	defer close(c.done)
	if errors.Is(c.err, g.cfg.Failed) {
		time.AfterFunc(g.cfg.Pause, func() { g.forget(who, key) })
	} else {
		g.forget(who, key)
	}
}

func (g *Group) forget(who any, key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.calls, key)
	if o := g.owners[who]; o.keys > 1 {
		o.keys--
	} else {
		delete(g.owners, who)
	}
}

// place is that of a call which runs. The lock of the Group guards it.
type place struct {
	group *Group
	owner *owner
	holds bool // one of quickCalls
	slows bool // one of slowCalls
}

// slow gives the place to another call, unless too many have done so.
func (p *place) slow() {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	if p.holds && p.owner.slow < slowCalls {
		p.owner.slow++
		p.holds, p.slows = false, true
		<-p.owner.places
	}
}

func (p *place) leave() {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	if p.holds {
		<-p.owner.places
	}
	if p.slows {
		p.owner.slow--
	}
	p.holds, p.slows = false, false
}

// Wait waits for calls until that time, or longer by what this process did not run, at most by more.
// It returns the outcome of each call. That of one that has not returned is the error of ctx, or wraps
// Failed.
func (g *Group) Wait(
	ctx context.Context, calls []*Call, until time.Time, more time.Duration,
) []error {
	within, cancel := g.pulse.Within(ctx, time.Until(until), more)
	defer cancel()
	outcomes := make([]error, len(calls))
	for i, c := range calls {
		select {
		case <-c.done:
		case <-within.Done():
		}
		select {
		case <-c.done:
			outcomes[i] = c.err
		default:
			outcomes[i] = cmp.Or(ctx.Err(), fmt.Errorf("%w in time", g.cfg.Failed))
		}
	}
	return outcomes
}
