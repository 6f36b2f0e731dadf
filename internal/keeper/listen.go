package keeper

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/lease"
)

// Wait registers a waiter at the semaphore of that name for messages about an id. On a cluster it listens only if others wait at
// the same outermost key already: most callers never wait, and one that does asks again once it
// listens.
func (k *Keeper) Wait(name, id, outermost string) *Waiter {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := &Waiter{Woken: make(chan struct{}, 1), name: name}
	k.waiting[id] = w
	switch {
	case k.closing:
		w.wake()
	case k.shards == nil:
		k.subscribe()
	default:
		if name := k.shards.name(outermost); k.shards.all[name] != nil {
			k.shards.join(w, name)
		}
	}
	return w
}

// Leave ends a Wait.
func (k *Keeper) Leave(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w := k.waiting[id]; w != nil && k.shards != nil {
		k.shards.leave(w)
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

// Channel returns the name of the channel to which a store is to send messages about an outermost
// key, and whether a waiter hears them from now on.
func (k *Keeper) Channel(outermost string, w *Waiter) (name string, hears bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.shards == nil {
		return k.channel, true
	}
	return k.shards.name(outermost), w != nil && w.shard != nil && w.shard.hears
}

// Tell delivers a store's message: a grant to a waiter, or an eviction to a holder.
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
	} else if granted {
		w = k.waiting[m.ID]
	}
	if w != nil {
		w.granted = m
	}
	k.mu.Unlock()
	if w != nil { // without the lock, which the waiter takes first
		w.wake()
	}
	if h != nil {
		h.lose(ErrLost)
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

// silence is how long a server may send nothing before the Keeper pings it. The answer may take as
// long.
const silence = 900 * time.Millisecond

// subscribe starts a goroutine that listens to the plain channel. The lock is held.
func (k *Keeper) subscribe() {
	if k.Client != nil && !k.listens {
		k.listens = true
		k.Tasks.Go(k.listen)
	}
}

// listen hears the plain channel, on a new connection whenever one fails. After each failure all
// waiters ask once, because earlier messages are lost.
func (k *Keeper) listen() {
	for k.done.Err() == nil {
		begun := time.Now()
		k.hearOn()
		if time.Since(begun) < grace/10 {
			select {
			case <-time.After(grace / 10):
			case <-k.done.Done():
			}
		}
	}
}

// dial returns a connection that is subscribed once it is read. It returns nil if there is none: a
// redis.Ring panics without a server for the channel.
func (k *Keeper) dial() (p *redis.PubSub) {
	defer func() { _ = recover() }()
	return k.Client.Subscribe(k.done, k.channel)
}

// hearOn reads messages until the connection fails or is silent. It reads without the channels of
// go-redis, which pass each message through one more goroutine.
func (k *Keeper) hearOn() {
	p := k.dial()
	if p == nil {
		return
	}
	stop := context.AfterFunc(k.done, func() { _ = p.Close() }) // which ends a read
	defer func() {
		stop()
		_ = p.Close()
	}()
	for asked := false; k.done.Err() == nil; {
		m, err := p.ReceiveTimeout(k.done, silence)
		var network net.Error
		switch {
		case err == nil:
			asked = false
			k.hear(m)
		case !asked && errors.As(err, &network) && network.Timeout() && p.Ping(k.done) == nil:
			asked = true
		default:
			return
		}
	}
}

func (k *Keeper) hear(m any) {
	switch m := m.(type) {
	case *redis.Message:
		k.Tell(m.Payload)
	case *redis.Subscription:
		k.Wake()
	}
}
