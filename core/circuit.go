package core

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	circuitThreshold = 3                      // failures in a row that open it
	circuitPause     = 250 * time.Millisecond // between probes while it is open
)

// circuit spares callers the wait for a Redis that is known to fail. While it is open nobody asks Redis but a probe
// of its own, which no caller waits for.
type circuit struct {
	probe   func(context.Context) error
	timeout time.Duration // of a probe
	most    int64         // calls in flight

	flying   atomic.Int64
	failures atomic.Int64 // in a row
	probeAt  atomic.Int64 // when open: the time of the next probe, on the clock of since
	probing  atomic.Bool
	start    time.Time
	tasks    *tasks
}

func newCircuit(most int, timeout time.Duration, t *tasks, probe func(context.Context) error) *circuit {
	return &circuit{probe: probe, timeout: timeout, most: int64(most), tasks: t, start: time.Now()}
}

func (c *circuit) since() int64 { return int64(time.Since(c.start)) }

// enter asks to call Redis. Each nil is followed by a leave.
func (c *circuit) enter() error {
	if c.failures.Load() >= circuitThreshold {
		c.ask()
		return ErrCircuitOpen
	}
	if c.flying.Add(1) > c.most {
		c.flying.Add(-1)
		return ErrTooManyInFlight
	}
	return nil
}

// leave ends a call that failed, or did not.
func (c *circuit) leave(failed bool) {
	c.flying.Add(-1)
	if !failed {
		// A late answer does not close a circuit that opened meanwhile: that is the probe's to say.
		if n := c.failures.Load(); n > 0 && n < circuitThreshold {
			c.failures.CompareAndSwap(n, 0)
		}
		return
	}
	if c.failures.Add(1) == circuitThreshold {
		c.probeAt.Store(c.since() + int64(circuitPause))
	}
}

// abandon ends a call that says nothing about Redis.
func (c *circuit) abandon() { c.flying.Add(-1) }

// doubt ends a call whose caller left it too short a time to tell a slow Redis from a dead one. A probe tells.
func (c *circuit) doubt() {
	c.flying.Add(-1)
	c.ask()
}

// ask starts a probe, unless one runs or has just ended.
func (c *circuit) ask() {
	if c.since() >= c.probeAt.Load() && c.probing.CompareAndSwap(false, true) {
		c.tasks.run(c.tryAgain)
	}
}

// tryAgain closes the circuit if the probe succeeds. Otherwise the probe counts as a failed call.
func (c *circuit) tryAgain() {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	if c.probe(ctx) == nil {
		c.failures.Store(0)
	} else if c.failures.Load() < circuitThreshold {
		c.failures.Add(1)
	}
	c.probeAt.Store(c.since() + int64(circuitPause))
	c.probing.Store(false)
}
