package admin

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
)

// Live is what one process sees happen, for the figures of the page that change by the second. Its
// Observe is for [core.Config.Observe]. The zero value is ready. It is safe for concurrent use and
// must not be copied. It keeps a minute of at most 256 policies and semaphores, and the 256 keys that
// were denied most in the last two minutes.
type Live struct {
	rates   rates
	refused refused

	withoutRedis counter // decisions of failure modes, on slots too
	failed       counter // requests that ended with an error, and not with a decision
	failure      atomic.Pointer[error]
	lost         counter // leases
	overloads    counter

	mu       sync.Mutex
	failures map[string]failure // of servers by address
}

// Observe notes an event. It takes well below a microsecond and allocates nothing for events that
// it has seen the like of. Compose it with other observers:
//
//	core.Config{Observe: func(ctx context.Context, e core.Event) {
//		live.Observe(ctx, e)
//		metrics.Observe(ctx, e)
//	}}
func (l *Live) Observe(_ context.Context, e core.Event) {
	switch e := e.(type) {
	case *core.DecisionEvent:
		l.decision(e, time.Now())
	case *semaphore.AcquireEvent:
		l.acquire(e, time.Now())
	case *semaphore.LeaseEvent:
		if e.Kind == semaphore.LeaseLost || e.Kind == semaphore.LeaseEvicted {
			l.lost.add(time.Now())
		}
	case *core.ServerEvent:
		l.server(e, time.Now())
	}
}

// decision notes a decision, unless it was a look.
func (l *Live) decision(e *core.DecisionEvent, now time.Time) {
	if e.Op == core.OpPeek {
		return
	}
	d := &e.Decision
	if !d.Allowed && l.fail(e.Err, now) {
		return
	}
	l.decided(d.Source, now)
	for i, r := range d.Results() {
		denies := !r.Allowed && (r.Policy.Shadow() || !d.Allowed) // one in Shadow would
		if !d.Allowed && !denies {
			continue // another charge denied the request, and nothing was spent here
		}
		s := l.rates.of(r.Policy, r.Policy.Name(), r.Policy.Shadow())
		if s.count(now, denies); denies && !r.Policy.Shadow() {
			l.refused.add(refusal{r.Policy.Name(), e.Charges[i].Key}, now)
		}
	}
}

// decided counts a decision of a failure mode.
func (l *Live) decided(source core.Source, now time.Time) {
	switch source {
	case core.SourceLocal, core.SourceOpen, core.SourceClosed, core.SourceOverload:
		l.withoutRedis.add(now)
	}
}

// fail reports whether a request ended with an error because Redis is misconfigured, and notes it.
func (l *Live) fail(err error, now time.Time) bool {
	if !errors.Is(err, core.ErrMisconfigured) {
		return false
	}
	l.failed.add(now)
	if last := l.failure.Load(); last == nil || (*last).Error() != err.Error() {
		kept := err // of its own: a call without a failure allocates nothing
		l.failure.Store(&kept)
	}
	return true
}

func (l *Live) acquire(e *semaphore.AcquireEvent, now time.Time) {
	if e.Full == nil && e.Source == core.SourceNone {
		l.fail(e.Err, now)
		return
	}
	l.decided(e.Source, now)
	l.rates.of(e.Semaphore, e.Semaphore.Name(), false).count(now, e.Refused())
	if e.Refused() {
		l.refused.add(refusal{e.Semaphore.Name(), e.Key}, now)
	}
}

func (l *Live) server(e *core.ServerEvent, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.Op {
	case core.OpCircuitOpened:
		if l.failures == nil {
			l.failures = make(map[string]failure)
		}
		if len(l.failures) < maxFailures {
			l.failures[e.Node] = failure{since: now, err: e.Err}
		}
	case core.OpCircuitClosed:
		delete(l.failures, e.Node)
	case core.OpOverload:
		l.overloads.add(now)
	}
}

// failing returns the failures of servers.
func (l *Live) failing() map[string]failure {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.failures)
}

// failure is that of a server whose circuit is open.
type failure struct {
	since time.Time
	err   error
}

const maxFailures = 256 // of servers

// history is how many seconds a counter remembers.
const history = 60

// counter counts events in each of the last seconds. Each word is a second, in its upper half, and
// the events in it. It is safe for concurrent use.
type counter struct {
	words [history + 4]atomic.Uint64 // the seconds to come are not read
}

func (c *counter) add(now time.Time) {
	second := uint64(now.Unix())
	w := &c.words[second%uint64(len(c.words))]
	for {
		old, fresh := w.Load(), second<<32+1
		if old>>32 == second&0xffff_ffff {
			fresh = old + 1
		}
		if w.CompareAndSwap(old, fresh) {
			return
		}
	}
}

// read returns the events in each of the seconds before now, the oldest first.
func (c *counter) read(now time.Time) (all [history]int64) {
	last := uint64(now.Unix()) - 1
	for i := range all {
		second := last - uint64(history-1-i)
		w := c.words[second%uint64(len(c.words))].Load()
		if w>>32 == second&0xffff_ffff {
			all[i] = int64(w & 0xffff_ffff)
		}
	}
	return all
}

// minute returns the events of the last minute.
func (c *counter) minute(now time.Time) (n int64) {
	for _, one := range c.read(now) {
		n += one
	}
	return n
}
