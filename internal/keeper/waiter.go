package keeper

import (
	"sync/atomic"

	"github.com/headgate/headgate/internal/lease"
)

// Waiter waits for a slot, or for a reason to ask for it again.
type Waiter struct {
	// Woken receives when Heard has news, or when it is time to ask again.
	Woken chan struct{}

	name   string // of the semaphore
	queues atomic.Bool

	granted lease.Message // the last one; the keeper's lock guards it
}

// Queues says that the store has queued the waiter.
func (w *Waiter) Queues() { w.queues.Store(true) }

func (w *Waiter) wake() {
	select {
	case w.Woken <- struct{}{}:
	default:
	}
}

// waiters are the waiters of a process by the ids that they wait for.
type waiters map[string]*Waiter

// wake makes all of them ask again.
func (w waiters) wake() {
	for _, one := range w {
		one.wake()
	}
}
