package core

import (
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/lease"
)

// waiter waits for a slot, or for a reason to ask again.
type waiter struct {
	woken   chan struct{}
	granted lease.Message // the last one; the leases' lock guards it
}

func (w *waiter) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// wait registers who waits for a wake-up.
func (l *leases) wait(id string) *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &waiter{woken: make(chan struct{}, 1)}
	l.waiting[id] = w
	if l.closing {
		w.wake()
	} else if l.client != nil && l.listens == nil {
		l.listens = l.client.Subscribe(l.done, l.channel)
		listens := l.listens
		l.gate.tasks.run(func() { l.listen(listens) })
	}
	return w
}

func (l *leases) leave(id string) {
	l.mu.Lock()
	delete(l.waiting, id)
	l.mu.Unlock()
}

// heard is what a waiter was woken for: a grant, the end of all waits, or, if neither, to ask again.
func (l *leases) heard(w *waiter) (granted lease.Message, closing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.granted, l.closing
}

// listen hears who is granted a slot. After every connection all ask once, because what was said before is lost.
func (l *leases) listen(p *redis.PubSub) {
	defer func() { _ = p.Close() }()
	messages := p.ChannelWithSubscriptions()
	for {
		select {
		case m, ok := <-messages:
			if !ok {
				return
			}
			switch m := m.(type) {
			case *redis.Message:
				l.told(l.channel, m.Payload)
			case *redis.Subscription:
				l.mu.Lock()
				l.wakeAll()
				l.mu.Unlock()
			}
		case <-l.done.Done():
			return
		}
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
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.held[id]; evicted && h != nil {
		l.drop(h)
		h.lose(ErrLeaseLost)
	} else if w := l.waiting[m.ID]; granted && w != nil {
		w.granted = m
		w.wake()
	}
}
