package core

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/internal/lease"
)

const (
	renewalsAtOnce = 16  // calls
	renewedAtOnce  = 256 // leases in a call
)

// renewal is of leases of one scope, by one call.
type renewal struct {
	together
	all []*holding
}

// together are what leases have in common that are renewed by one call.
type together struct {
	store leaseStore
	scope string
	lease time.Duration
}

// renewals renews what is held until nothing is. It waits for no call, so that who cannot be renewed is lost in time.
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
		l.mu.Lock()
		l.expire(time.Now())
		if len(l.held) == 0 {
			l.renewing = false
			l.mu.Unlock()
			return
		}
		renewals, next := l.due(time.Now())
		l.next = next
		l.mu.Unlock()
		for _, r := range renewals {
			l.gate.tasks.run(func() {
				l.room <- struct{}{}
				l.renew(r)
				<-l.room
				l.poke()
			})
		}
		timer.Reset(time.Until(next))
	}
}

// poke lets the renewals look again at what is due.
func (l *leases) poke() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// expire loses the leases whose time is over, or asks once more for those to adopt.
func (l *leases) expire(now time.Time) {
	for _, h := range l.held {
		if h.until.IsZero() || now.Before(h.until) {
			continue
		}
		l.drop(h)
		if h.onLoss == AdoptOnLoss && h.store != nil {
			l.gate.tasks.run(func() { l.miss(h, false) })
		} else {
			h.lose(ErrLeaseLost)
		}
	}
}

// due are the leases to renew now, with those that are almost due and can be renewed by the same calls, and when to look
// again.
func (l *leases) due(now time.Time) (renewals []*renewal, next time.Time) {
	at := make(map[together]*renewal)
	for _, h := range l.held {
		if k := h.together(); h.store != nil && !h.renewing && !now.Before(h.due) && at[k] == nil {
			at[k] = &renewal{together: k}
			renewals = append(renewals, at[k])
		}
	}
	next = now.Add(time.Hour)
	for _, h := range l.held {
		if h.until.IsZero() {
			continue
		}
		r := at[h.together()]
		if r != nil && !h.renewing && h.due.Before(now.Add(h.lease/10)) && len(r.all) < renewedAtOnce {
			h.renewing = true
			r.all = append(r.all, h)
		}
		if at := h.next(); at.Before(next) {
			next = at
		}
	}
	return renewals, next
}

// next is when to look at a lease again.
func (h *holding) next() time.Time {
	if h.store != nil && !h.renewing && h.due.Before(h.until) {
		return h.due
	}
	return h.until
}

func (h *holding) together() together { return together{h.store, h.scope, h.lease} }

func (l *leases) renew(r *renewal) {
	ids := make([]string, len(r.all))
	for i, h := range r.all {
		ids[i] = h.id
	}
	sent := time.Now()
	left, err := r.store.renew(context.Background(), r.scope, r.lease.Microseconds(), ids)
	l.mu.Lock()
	var lost []*holding
	var evicted []bool
	for i, h := range r.all {
		h.renewing = false
		switch {
		case err != nil:
			h.due = time.Now().Add(jitter(r.lease / 20)) // again, until its time is over
		case left[i] > 0:
			h.renewed(sent, time.Duration(left[i])*time.Microsecond)
		case l.drop(h): // else it was released meanwhile
			lost, evicted = append(lost, h), append(evicted, left[i] < 0)
		}
	}
	l.mu.Unlock()
	for i, h := range lost {
		l.miss(h, evicted[i])
	}
}

// extend renews one lease for who waits for it.
func (l *leases) extend(ctx context.Context, h *holding) error {
	if h.store == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.lost
	}
	sent := time.Now()
	left, err := h.store.renew(ctx, h.scope, h.lease.Microseconds(), []string{h.id})
	if err != nil {
		return fmt.Errorf("core: extend: %w", err)
	}
	l.mu.Lock()
	if left[0] > 0 {
		h.renewed(sent, time.Duration(left[0])*time.Microsecond)
	}
	lost := left[0] <= 0 && l.drop(h)
	l.mu.Unlock()
	if lost {
		l.miss(h, left[0] < 0)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if left[0] <= 0 && !lost {
		return ErrLeaseLost // it was released, or is lost already
	}
	return h.lost
}

// miss loses a lease that is in care no longer, or adopts it.
func (l *leases) miss(h *holding, evicted bool) {
	if evicted || h.onLoss != AdoptOnLoss || !l.adopt(h) {
		h.lose(ErrLeaseLost)
	}
}

// adopt takes a slot anew for a holder whose lease is unknown, if there is room.
func (l *leases) adopt(h *holding) bool {
	sent, q := time.Now(), h.request
	if !h.ends.IsZero() { // its longest hold does not begin anew
		if h.ends.Sub(sent) < h.lease/5 { // nearly over: it is believed in for a tenth less
			return false
		}
		q.Longest = h.ends.Sub(sent).Microseconds()
		q.Lease = min(q.Lease, q.Longest)
	}
	g, err := h.store.acquire(context.Background(), h.scope, q)
	if err == nil && g.Status != lease.Held {
		return false
	}
	l.mu.Lock()
	wanted := err == nil && !h.released && !l.closing
	anew := true
	if wanted {
		if h.store == l.store {
			anew = h.token.Swap(g.Token) != g.Token
		}
		h.renewed(sent, time.Duration(g.Left)*time.Microsecond)
		l.keep(h)
	}
	l.mu.Unlock()
	if !wanted {
		_ = h.free(context.Background()) // else its lease ends
		return false
	}
	if observe := l.gate.observe; observe != nil && anew {
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
