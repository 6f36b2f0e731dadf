package trips

import "time"

// Lag makes this process one that lags: a beat was late.
func (s *Servers) Lag() { s.first.queue.tick(4 * time.Millisecond) }

// Starve makes this process one whose goroutines wait for that long for their turn.
func (s *Servers) Starve(turn time.Duration) {
	s.first.queue.pulse.Fired = func() { time.Sleep(turn) }
}
