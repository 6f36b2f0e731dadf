package lease

import (
	"cmp"
	"math"
	"sync/atomic"
	"time"
)

// Mean is how long a process has lately held what it has given back. The zero value is no mean yet.
// It is safe for concurrent use.
type Mean struct{ micros atomic.Int64 }

const (
	unknownHold  = 3 * time.Second // while nothing has been given back
	shortestHold = time.Second
	longestHold  = 30 * time.Second
)

// Add moves the mean by how long one thing was held.
func (m *Mean) Add(held time.Duration) {
	m.micros.Store(MeanHold(m.micros.Load(), held.Microseconds()))
}

// Get returns the mean, or 0 if there is none yet.
func (m *Mean) Get() time.Duration { return time.Duration(m.micros.Load()) * time.Microsecond }

// Wait returns an estimate of the wait until something comes back: the mean, or 3 s if nothing has
// come back yet. It is between 1 s and 30 s, and at most the longest hold.
func (m *Mean) Wait(longest time.Duration) time.Duration {
	wait := max(cmp.Or(m.Get(), unknownHold), shortestHold)
	return min(wait, longestHold, longest)
}

// MeanHold moves a mean hold by an eighth of the distance to a new one. Zero is no mean yet.
func MeanHold(mean, held int64) int64 {
	if mean == 0 {
		mean = held
	}
	return max(1, mean+int64(math.Floor(float64(held-mean)/8)))
}
