package core

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/lease"
)

// leases are a Gate's: it renews those that are held, and wakes those who wait.
type leases struct {
	gate    *Gate
	store   leaseStore
	local   leaseStore // while Redis fails
	client  redis.UniversalClient
	channel string

	mu       sync.Mutex
	held     map[string]*holding
	waiting  map[string]chan struct{}
	changed  chan struct{} // to the renewals
	renewing bool
	listens  *redis.PubSub
	idle     chan struct{} // closed when nothing is held, if somebody waits for that
	stop     context.CancelFunc
	done     context.Context
}

func newLeases(g *Gate, client redis.UniversalClient, clock func() int64) *leases {
	l := &leases{
		gate: g, client: client, channel: g.prefix + "wake:" + newID(),
		held: make(map[string]*holding), waiting: make(map[string]chan struct{}), changed: make(chan struct{}, 1),
	}
	l.done, l.stop = context.WithCancel(context.Background())
	l.local = newMemoryLeases(clock, l.told)
	l.store = l.local
	if s, ok := g.store.(*redisStore); ok {
		l.store = &redisLeases{redisStore: s, gate: g, script: leaseScript}
	}
	return l
}

func (l *leases) list(ctx context.Context, scope string) (int64, []lease.Entry, error) {
	return l.store.list(ctx, scope)
}

func (l *leases) force(ctx context.Context, scope string, ids []string) ([]int64, error) {
	return l.store.force(ctx, scope, ids)
}

// hold takes a granted lease into care.
func (l *leases) hold(h *holding) {
	l.mu.Lock()
	l.held[h.id] = h
	if !l.renewing {
		l.renewing = true
		l.gate.tasks.run(l.renewals)
	}
	l.mu.Unlock()
	l.poke()
}

func (l *leases) poke() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func (l *leases) forget(h *holding) {
	l.mu.Lock()
	delete(l.held, h.id)
	if len(l.held) == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
	l.mu.Unlock()
}

func (l *leases) release(ctx context.Context, h *holding) error {
	l.forget(h)
	if h.store == nil {
		return nil
	}
	if _, err := h.store.release(ctx, h.scope, []string{h.id}); err != nil {
		return fmt.Errorf("core: release: %w", err)
	}
	return nil
}

// close ends all waits, lets holders finish until ctx ends, and gives up what is left.
func (l *leases) close(ctx context.Context) error {
	l.mu.Lock()
	for _, woken := range l.waiting {
		wake(woken)
	}
	var idle chan struct{}
	if len(l.held) > 0 {
		if l.idle == nil {
			l.idle = make(chan struct{})
		}
		idle = l.idle
	}
	l.mu.Unlock()
	var err error
	if idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	l.mu.Lock()
	rest := l.held
	l.held = make(map[string]*holding)
	l.mu.Unlock()
	for _, h := range rest {
		h.lose(ErrClosed)
		if h.store != nil {
			_, e := h.store.release(context.WithoutCancel(ctx), h.scope, []string{h.id})
			err = errors.Join(err, e)
		}
	}
	l.stop()
	return err
}
