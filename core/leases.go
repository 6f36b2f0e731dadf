package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

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

// renewals renews what is held, in batches, until nothing is.
func (l *leases) renewals() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.changed:
		case <-l.done.Done():
			return
		}
		next, batches := l.due(time.Now())
		for _, b := range batches {
			l.renew(b)
		}
		if len(batches) > 0 {
			next, _ = l.due(time.Now())
		}
		l.mu.Lock()
		if len(l.held) == 0 {
			l.renewing = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		timer.Reset(time.Until(next))
	}
}

// renewal is of leases of one scope.
type renewal struct {
	store leaseStore
	scope string
	lease time.Duration
	all   []*holding
}

// due are the leases to renew now, and when the next is. Those whose time is over are lost.
func (l *leases) due(now time.Time) (next time.Time, batches []*renewal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next = now.Add(time.Hour)
	for id, h := range l.held {
		switch {
		case h.store == nil:
			continue
		case !now.Before(h.until):
			delete(l.held, id)
			h.lose(ErrLeaseLost)
			continue
		case !now.Before(h.due):
			var b *renewal
			for _, x := range batches {
				if x.store == h.store && x.scope == h.scope && x.lease == h.lease {
					b = x
				}
			}
			if b == nil {
				b = &renewal{store: h.store, scope: h.scope, lease: h.lease}
				batches = append(batches, b)
			}
			b.all = append(b.all, h)
		}
		for _, t := range []time.Time{h.due, h.until} {
			if t.After(now) && t.Before(next) {
				next = t
			}
		}
	}
	return next, batches
}

func (l *leases) renew(b *renewal) {
	ids := make([]string, len(b.all))
	for i, h := range b.all {
		ids[i] = h.id
	}
	sent := time.Now()
	left, err := b.store.renew(context.Background(), b.scope, b.lease.Microseconds(), ids)
	l.mu.Lock()
	var lost []*holding
	for i, h := range b.all {
		switch {
		case err != nil:
			h.due = time.Now().Add(jitter(b.lease / 20)) // again, until its time is over
		case left[i] == 0:
			if l.held[h.id] == h { // else it was released meanwhile
				delete(l.held, h.id)
				lost = append(lost, h)
			}
		default:
			h.renewed(sent, time.Duration(left[i])*time.Microsecond)
		}
	}
	l.mu.Unlock()
	for _, h := range lost {
		if h.onLoss != AdoptOnLoss || !l.adopt(h) {
			h.lose(ErrLeaseLost)
		}
	}
}

// adopt takes a slot anew for a holder whose lease is unknown, if there is room.
func (l *leases) adopt(h *holding) bool {
	sent := time.Now()
	g, err := h.store.acquire(context.Background(), h.scope, h.request)
	if err != nil || g.Status != lease.Held {
		return false
	}
	h.token.Store(g.Token)
	l.mu.Lock()
	h.renewed(sent, h.lease)
	l.held[h.id] = h
	l.mu.Unlock()
	if observe := l.gate.observe; observe != nil {
		observe(context.Background(), Event{Operation: "adopt", Took: time.Since(sent)})
	}
	return true
}

// renewed sets when to renew the lease again and until when it is believed in: by the monotonic clock, from before
// it was asked for, and a tenth earlier, in case the clocks differ in speed.
func (h *holding) renewed(sent time.Time, left time.Duration) {
	h.until = sent.Add(left - left/10)
	h.due = sent.Add(jitter(h.lease / 3))
	if h.due.After(h.until) { // its longest hold ends
		h.due = h.until
	}
}

// jitter is about d, to 10 %.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rand.Int64N(int64(d/5)+1))
}

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

// half is between a half of d and all of it.
func half(d time.Duration) time.Duration { return d - time.Duration(rand.Int64N(int64(max(d, 1))/2+1)) }
