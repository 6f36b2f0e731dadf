package core

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/internal/lease"
)

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
