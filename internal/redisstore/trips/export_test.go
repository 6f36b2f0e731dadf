package trips

import "time"

// Lag makes this process one that lags: a beat was late.
func (s *Servers) Lag() { s.first.queue.tick(4 * time.Millisecond) }
