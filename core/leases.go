package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// leases are a Gate's: it renews those that are held, and wakes those who wait.
type leases struct {
	gate   *Gate
	store  leaseStore
	local  leaseStore // while Redis fails
	client redis.UniversalClient
	plain  string // the channel of this process

	mu       sync.Mutex
	held     map[string]*holding
	waiting  map[string]*waiter
	busy     int           // calls that acquire or release
	idle     chan struct{} // closed when nothing is held and no call is busy, if somebody waits for that
	closing  bool
	over     bool          // what was left was given up
	changed  chan struct{} // to the renewals
	renewing bool
	next     time.Time     // when the renewals look again
	room     chan struct{} // for calls that renew
	listens  *redis.PubSub
	sharded  *listeners // or nil, where there are none
	stop     context.CancelFunc
	done     context.Context
}

func newLeases(g *Gate, client redis.UniversalClient, clock func() int64) *leases {
	id := newID()
	l := &leases{
		gate: g, client: client, plain: g.prefix + "wake:" + id,
		held: make(map[string]*holding), waiting: make(map[string]*waiter), changed: make(chan struct{}, 1),
		room: make(chan struct{}, renewalsAtOnce),
	}
	l.sharded = newListeners(l, client, id)
	l.done, l.stop = context.WithCancel(context.Background())
	l.local = newMemoryLeases(clock, l.told)
	l.store = l.local
	if s, ok := g.store.(*redisStore); ok {
		l.store = &redisLeases{redisStore: s, gate: g, script: leaseScript}
	}
	return l
}

// begin starts a call that acquires. Each nil is followed by an end.
func (l *leases) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return ErrClosed
	}
	l.busy++
	return nil
}

func (l *leases) end() {
	l.mu.Lock()
	l.busy--
	l.rest()
	l.mu.Unlock()
}

// rest tells who waits for it that nothing is left to do. It is called with the lock.
func (l *leases) rest() {
	if len(l.held) == 0 && l.busy == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// hold takes a granted lease into care. One that comes after Close gave up is lost.
func (l *leases) hold(h *holding) {
	l.mu.Lock()
	over := l.over
	if over {
		h.released = true
	} else {
		l.keep(h)
		if l.sharded == nil && h.store == l.store {
			l.subscribe() // to hear of it if the slot is taken away
		}
	}
	l.mu.Unlock()
	if over {
		h.lose(ErrClosed)
		l.gate.tasks.run(func() { _ = h.free(context.Background()) }) // else it ends
	}
}

// keep is called with the lock, as is drop.
func (l *leases) keep(h *holding) {
	l.held[h.id] = h
	switch {
	case !l.renewing:
		l.renewing, l.next = true, time.Time{}
		l.gate.tasks.run(l.renewals)
	case h.next().Before(l.next): // who is asleep costs more to wake than all else here
		l.poke()
	}
}

// drop takes a lease out of care, and says whether it was in it.
func (l *leases) drop(h *holding) bool {
	if l.held[h.id] != h {
		return false
	}
	delete(l.held, h.id)
	l.rest()
	return true
}

func (l *leases) release(ctx context.Context, h *holding) error {
	l.mu.Lock()
	l.busy++
	h.released = true
	l.drop(h)
	l.mu.Unlock()
	defer l.end()
	if err := h.free(ctx); err != nil {
		return fmt.Errorf("core: release: %w", err)
	}
	return nil
}

// free gives the slot back to where it was granted.
func (h *holding) free(ctx context.Context) error {
	if h.store == nil {
		return nil
	}
	_, err := h.store.release(ctx, h.scope, []string{h.id})
	return err
}

// close ends all waits, lets holders finish until ctx ends, and gives up what is left.
func (l *leases) close(ctx context.Context) error {
	l.mu.Lock()
	l.closing = true
	l.wakeAll()
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	l.rest()
	l.mu.Unlock()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = ctx.Err()
	}
	l.mu.Lock()
	l.over = true
	rest := l.held
	l.held = make(map[string]*holding)
	for _, h := range rest {
		h.released = true
	}
	l.mu.Unlock()
	for _, h := range rest {
		h.lose(ErrClosed)
		err = errors.Join(err, h.free(context.WithoutCancel(ctx)))
	}
	l.stop()
	return err
}
