package core

import (
	"sync/atomic"
	"time"
)

// Clock tells a Gate in memory the time. It may go back; then no limit allows more than it would have.
type Clock interface{ Now() time.Time }

// ManualClock is a Clock for tests: it stands still until it is told otherwise. The zero value stands at the start of
// 1970; NewManualClock sets it. It is safe for concurrent use and must not be copied.
type ManualClock struct{ micros atomic.Int64 }

// NewManualClock returns a clock that stands at t, to the microsecond.
func NewManualClock(t time.Time) *ManualClock {
	c := new(ManualClock)
	c.Set(t)
	return c
}

// Now is the time of the clock.
func (c *ManualClock) Now() time.Time { return time.UnixMicro(c.micros.Load()) }

// Set sets the clock, forward or back.
func (c *ManualClock) Set(t time.Time) { c.micros.Store(t.UnixMicro()) }

// Advance moves the clock on, or back where d is negative. Less than a microsecond is lost.
func (c *ManualClock) Advance(d time.Duration) { c.micros.Add(d.Microseconds()) }

// fromNow returns a clock that starts now and never goes back.
func fromNow() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
