package core

import (
	"strings"

	"github.com/redis/go-redis/v9"
)

// wait registers who waits for a wake-up.
func (l *leases) wait(id string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	woken := make(chan struct{}, 1)
	l.waiting[id] = woken
	if l.client != nil && l.listens == nil && l.done.Err() == nil {
		l.listens = l.client.Subscribe(l.done, l.channel)
		listens := l.listens
		l.gate.tasks.run(func() { l.listen(listens) })
	}
	return woken
}

func (l *leases) leave(id string) {
	l.mu.Lock()
	delete(l.waiting, id)
	l.mu.Unlock()
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
				for _, woken := range l.waiting {
					wake(woken)
				}
				l.mu.Unlock()
			}
		case <-l.done.Done():
			return
		}
	}
}

func wake(woken chan struct{}) {
	select {
	case woken <- struct{}{}:
	default:
	}
}

// told wakes who was granted a slot, or tells who was evicted.
func (l *leases) told(_, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id, evicted := strings.CutPrefix(message, "!"); evicted {
		if h := l.held[id]; h != nil {
			delete(l.held, id)
			h.lose(ErrLeaseLost)
		}
	} else if woken := l.waiting[message]; woken != nil {
		wake(woken)
	}
}
