package core

import (
	"sync/atomic"
	"time"
)

// ManualClock is a clock for tests: its Now is a Config.Clock. It stands still until Advance or
// Set moves it. The zero value stands at the start of 1970. It is safe for concurrent use and must not be
// copied.
type ManualClock struct{ micros atomic.Int64 }

// NewManualClock returns a clock that stands at t, rounded down to a microsecond.
func NewManualClock(t time.Time) *ManualClock {
	c := new(ManualClock)
	c.Set(t)
	return c
}

// Now returns the time of the clock.
func (c *ManualClock) Now() time.Time { return time.UnixMicro(c.micros.Load()) }

// Advance moves the clock by d, back if d is negative. It drops fractions of a microsecond.
func (c *ManualClock) Advance(d time.Duration) { c.micros.Add(d.Microseconds()) }

// Set moves the clock to t, forward or back, rounded down to a microsecond.
func (c *ManualClock) Set(t time.Time) { c.micros.Store(t.UnixMicro()) }
