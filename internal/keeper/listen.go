package keeper

import (
	"context"
	"strings"

	"github.com/headgate/headgate/internal/lease"
)

// Wait registers a waiter at the semaphore of that name for messages about an id.
func (k *Keeper) Wait(name, id, outermost string) *Waiter {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := &Waiter{Woken: make(chan struct{}, 1), name: name}
	k.waiting[id] = w
	if k.closing {
		w.wake()
	} else {
		k.channels.wait(w, outermost)
	}
	return w
}

// Leave ends a Wait.
func (k *Keeper) Leave(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w := k.waiting[id]; w != nil {
		k.channels.leave(w)
	}
	delete(k.waiting, id)
}

// Heard returns what a waiter was woken for: a grant, or the end of all waits. If it is neither,
// the waiter asks again.
func (k *Keeper) Heard(w *Waiter) (granted lease.Message, closing bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return w.granted, k.closing
}

// Channel returns the name of the channel to which a store is to send messages about an outermost key.
func (k *Keeper) Channel(outermost string) string { return k.channels.channel(outermost) }

// Attend makes a waiter hear the channel of that name. If it hears that only now, the waiter is woken to
// ask again once it does.
func (k *Keeper) Attend(ctx context.Context, w *Waiter, name string) {
	k.channels.attend(ctx, w, name)
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
