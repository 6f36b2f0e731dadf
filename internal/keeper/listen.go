package keeper

import (
	"context"
	"strings"

	"github.com/headgate/headgate/internal/lease"
)

// channels are where a process hears what Redis tells it. Those on Redis are made by the function of
// Config.Listen, so that the linker drops them, and go-redis, from a program in memory. No type that
// a Keeper is made of may name one of go-redis for the same reason.
type channels interface {
	// channel returns the name of the one for an outermost key.
	channel(outermost string) string
	// wait begins to listen for a waiter, and hold for evictions of leases. The lock is held, as in leave.
	wait(w *Waiter, outermost string)
	hold()
	leave(w *Waiter)
	// attend is described at Attend.
	attend(ctx context.Context, w *Waiter, name string)
}

// silent is a channel that nothing is told on, because the store calls Tell.
type silent struct{ name string }

func (c silent) channel(string) string                 { return c.name }
func (silent) wait(*Waiter, string)                    {}
func (silent) hold()                                   {}
func (silent) leave(*Waiter)                           {}
func (silent) attend(context.Context, *Waiter, string) {}

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
