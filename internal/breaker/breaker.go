// Package breaker keeps callers from waiting for a server that is known to fail.
package breaker

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

const (
	threshold = 3 // failures in a row that open the breaker
	// Pause is the time between two probes while the breaker is open.
	Pause = 250 * time.Millisecond
)

var (
	// ErrOpen is returned by Enter while the breaker is open.
	ErrOpen = errors.New("breaker: open")
	// ErrBusy is returned by Enter while the most calls possible are in flight.
	ErrBusy = errors.New("breaker: too many calls in flight")
)

// Breaker is a circuit breaker in front of a server. While it is open, only its own probe asks the
// server, and no caller waits for that. It is safe for concurrent use and must not be copied.
type Breaker struct {
	probe   func(context.Context) error
	timeout time.Duration // of a probe
	most    int64         // calls in flight
	tasks   *Tasks

	inFlight atomic.Int64
	failures atomic.Int64 // in a row
	probeAt  atomic.Int64 // while open: the time of the next probe, on the clock of elapsed
	probing  atomic.Bool
	start    time.Time
}

// New returns a closed breaker that admits that many calls at a time. A probe runs in one of tasks
// and ends within the timeout.
func New(
	most int,
	timeout time.Duration,
	tasks *Tasks,
	probe func(context.Context) error,
) *Breaker {
	return &Breaker{
		probe:   probe,
		timeout: timeout,
		most:    int64(most),
		tasks:   tasks,
		start:   time.Now(),
	}
}

func (b *Breaker) elapsed() int64 { return int64(time.Since(b.start)) }

// Enter begins a call, or returns ErrOpen or ErrBusy. Each nil is followed by one of Succeed, Fail,
// Abandon and Doubt.
func (b *Breaker) Enter() error {
	if b.failures.Load() >= threshold {
		b.try()
		return ErrOpen
	}
	if b.inFlight.Add(1) > b.most {
		b.inFlight.Add(-1)
		return ErrBusy
	}
	return nil
}

// Succeed ends a call that the server answered. A late answer does not close a breaker that has
// opened meanwhile: only a probe does.
func (b *Breaker) Succeed() {
	b.inFlight.Add(-1)
	if n := b.failures.Load(); n > 0 && n < threshold {
		b.failures.CompareAndSwap(n, 0)
	}
}

// Fail ends a call that the server failed.
func (b *Breaker) Fail() {
	b.inFlight.Add(-1)
	if b.failures.Add(1) == threshold {
		b.probeAt.Store(b.elapsed() + int64(Pause))
	}
}

// Abandon ends a call that says nothing about the server.
func (b *Breaker) Abandon() { b.inFlight.Add(-1) }

// Doubt ends a call whose caller left too little time to tell a slow server from a dead one. It
// starts a probe, which tells.
func (b *Breaker) Doubt() {
	b.inFlight.Add(-1)
	b.try()
}

// Closed reports whether a call would be let through now. If not, it lets a probe run that is due.
func (b *Breaker) Closed() bool {
	if b.Enter() != nil {
		return false
	}
	b.Abandon()
	return true
}

// try starts a probe, unless one runs or has just ended.
func (b *Breaker) try() {
	if b.elapsed() >= b.probeAt.Load() && b.probing.CompareAndSwap(false, true) {
		b.tasks.Go(b.run)
	}
}

// run closes the breaker if the probe succeeds. Otherwise the probe counts as a failed call.
func (b *Breaker) run() {
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	if b.probe(ctx) == nil {
		b.failures.Store(0)
	} else if b.failures.Load() < threshold {
		b.failures.Add(1)
	}
	b.probeAt.Store(b.elapsed() + int64(Pause))
	b.probing.Store(false)
}
