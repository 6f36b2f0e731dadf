// Package breaker keeps callers from waiting for a server that is known to fail.
package breaker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Pause is the time between two probes of a server that fails.
const Pause = 250 * time.Millisecond

// Config configures a Breaker.
type Config struct {
	// Probe asks the server and returns its fault, or nil. It bounds its own time.
	Probe func(context.Context) error
	// Probed is called after each probe, with its outcome and whether that opened or closed the
	// breaker. It returns whether to go on watching the server.
	Probed func(fault error, changed bool) (watched bool)
	// Stopped is called when the tasks are stopped while the breaker is open. No probe follows.
	Stopped func()
	// Soon is for how long the success of a probe counts. A doubt starts no other one meanwhile.
	Soon  time.Duration
	Tasks *Tasks // run the probes
}

// Breaker is a circuit breaker in front of a server. Only a probe opens and closes it: calls fail
// for many reasons of their own. One probe runs at a time, and no caller waits for it. While the
// breaker is open, one begins after each pause. It is safe for concurrent use and must not be
// copied.
type Breaker struct {
	Config

	open atomic.Bool
	mu   sync.Mutex
	busy bool      // a probe runs or is due
	next time.Time // of the next probe that a doubt may start
}

// New returns a closed breaker.
func New(cfg Config) *Breaker { return &Breaker{Config: cfg} }

// IsOpen reports whether the server is known to fail.
func (b *Breaker) IsOpen() bool { return b.open.Load() }

// Doubt reports a call without an answer. It starts a probe, unless one runs or has just ended.
func (b *Breaker) Doubt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.busy || time.Now().Before(b.next) {
		return
	}
	b.busy = true
	b.Tasks.Go(b.run)
}

func (b *Breaker) run() {
	for again := true; again; {
		fault := b.Probe(context.Background())
		changed := b.open.Swap(fault != nil) != (fault != nil)
		again = b.Probed(fault, changed) && fault != nil
		counts := Pause
		if fault == nil {
			counts = b.Soon
		}
		b.mu.Lock()
		b.busy, b.next = again, time.Now().Add(counts)
		b.mu.Unlock()
		if again && !b.Tasks.Sleep(Pause) {
			b.Stopped()
			return
		}
	}
}
