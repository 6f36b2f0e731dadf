package keeper

import (
	"strings"
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

// Wait registers a waiter at the semaphore of that name for messages about an id.
func (k *Keeper) Wait(name, id string) *Waiter {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := &Waiter{Woken: make(chan struct{}, 1), name: name}
	k.waiting[id] = w
	if k.closing {
		w.wake()
	} else {
		k.listen()
	}
	return w
}

// Leave ends a Wait.
func (k *Keeper) Leave(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.waiting, id)
}

// Heard returns what a waiter was woken for: a grant, or the end of all waits. If it is neither,
// the waiter asks again.
func (k *Keeper) Heard(w *Waiter) (granted lease.Message, closing bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return w.granted, k.closing
}

// Tell delivers a store's message: a grant to a waiter, or an eviction. An evicted waiter asks again,
// and is told so.
func (k *Keeper) Tell(message string) {
	id, evicted := strings.CutPrefix(message, "!")
	m, granted := lease.ParseMessage(message)
	var w *Waiter
	var h *Holding
	k.mu.Lock()
	if evicted {
		if h = k.held[id]; h != nil {
			k.drop(h)
		}
		w = k.waiting[id]
	} else if granted {
		if w = k.waiting[m.ID]; w != nil {
			w.granted = m
		}
	}
	k.mu.Unlock()
	if w != nil { // without the lock, which the waiter takes first
		w.wake()
	}
	if h != nil {
		h.lose(ErrEnded)
		// A store in memory tells under its lock.
		k.Tasks.Go(func() { h.Notify(Notice{Kind: Evicted}) })
	}
}

// Wake makes every waiter ask again.
func (k *Keeper) Wake() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting.wake()
}
