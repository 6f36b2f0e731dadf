package trips

import (
	"testing"
	"time"
)

// Lag makes this process one that lags: a beat was late.
func (s *Servers) Lag() { s.first.queue.tick(4 * time.Millisecond) }

// Starve makes this process one whose goroutines wait for that long for their turn.
func (s *Servers) Starve(t *testing.T, turn time.Duration) {
	t.Cleanup(func() { time.Sleep(3 * turn) }) // for the last beats
	p := &s.first.queue.pulse
	fired := p.Fired
	p.Fired = func() {
		fired()
		time.Sleep(turn) // in a bubble
	}
}
