package core

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/lease"
)

// waiter waits for a slot, or for a reason to ask again.
type waiter struct {
	woken   chan struct{}
	granted lease.Message // the last one; the leases' lock guards it, and channel
	channel *channel      // on a cluster, or nil
}

func (w *waiter) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// wait registers who may wait for a wake-up. On a cluster it listens only where others wait already: most never wait, and who
// does asks again once it listens.
func (l *leases) wait(id, outermost string) *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &waiter{woken: make(chan struct{}, 1)}
	l.waiting[id] = w
	switch {
	case l.closing:
		w.wake()
	case l.sharded == nil:
		l.subscribe()
	default:
		if name := l.sharded.name(outermost); l.sharded.channels[name] != nil {
			l.sharded.join(w, name)
		}
	}
	return w
}

// subscribe is called with the lock, and so leaves what takes time to listen.
func (l *leases) subscribe() {
	if l.client != nil && l.listens == nil {
		l.listens = l.client.Subscribe(l.done)
		listens := l.listens
		l.gate.tasks.run(func() { l.listen(listens) })
	}
}

func (l *leases) leave(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.waiting[id]; w != nil && l.sharded != nil {
		l.sharded.leave(w)
	}
	delete(l.waiting, id)
}

// heard is what a waiter was woken for: a grant, the end of all waits, or, if neither, to ask again.
func (l *leases) heard(w *waiter) (granted lease.Message, closing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.granted, l.closing
}

// listen hears who is granted a slot. After every connection all ask once, because what was said before is lost. It reads
// by itself, because the channels of go-redis would pass every message through one goroutine more.
func (l *leases) listen(p *redis.PubSub) {
	context.AfterFunc(l.done, func() { _ = p.Close() }) // which ends a read
	_ = p.Subscribe(l.done, l.plain)                    // else it is tried again below
	for failed := false; l.done.Err() == nil; {
		m, err := p.ReceiveTimeout(l.done, silence)
		var network net.Error
		switch {
		case err == nil:
			failed = false
			l.hear(m)
		case errors.As(err, &network) && network.Timeout():
			_ = p.Ping(l.done) // it connects again if need be
		case failed:
			select {
			case <-time.After(grace / 10):
			case <-l.done.Done():
			}
		default: // it has connected again, or the next read tries to
			failed = true
		}
	}
}

func (l *leases) hear(m any) {
	switch m := m.(type) {
	case *redis.Message:
		l.told(l.plain, m.Payload)
	case *redis.Subscription:
		l.mu.Lock()
		l.wakeAll()
		l.mu.Unlock()
	}
}

func (l *leases) wakeAll() {
	for _, w := range l.waiting {
		w.wake()
	}
}

// told wakes who was granted a slot, or tells who was evicted.
func (l *leases) told(_, message string) {
	id, evicted := strings.CutPrefix(message, "!")
	m, granted := lease.ParseMessage(message)
	var w *waiter
	l.mu.Lock()
	if h := l.held[id]; evicted && h != nil {
		l.drop(h)
		h.lose(ErrLeaseLost)
	} else if granted {
		w = l.waiting[m.ID]
	}
	if w != nil {
		w.granted = m
	}
	l.mu.Unlock()
	if w != nil { // without the lock, which it takes first
		w.wake()
	}
}
