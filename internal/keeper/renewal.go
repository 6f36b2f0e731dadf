package keeper

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/lease"
)

// renewal is the leases that one call renews.
type renewal struct {
	group
	leases []*Holding
	until  time.Time // when the last of them ends
}

// group is what the leases of one call have in common.
type group struct {
	place
	ttl time.Duration
}

func (h *Holding) group() group { return group{place{h.Store, h.Scope}, h.TTL} }

// look renews the leases that are due, gives up overdue ones, and repeats failed releases. It waits
// for no call, so a lease that cannot be renewed is lost in time.
func (k *Keeper) look() {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timed = false
	for _, h := range k.overdue(now, now.Sub(k.next) > again) {
		k.Tasks.Go(func() { k.lost(h, false) })
	}
	renewals, next := k.due(now)
	for _, r := range renewals {
		k.Tasks.Go(func() { k.renew(r) })
	}
	returns, again := k.returns.due(now)
	for _, r := range returns {
		k.Tasks.Go(func() { k.sendBack(r) })
	}
	if len(k.held) > 0 || len(k.returns) > 0 {
		k.attend(next)
		k.attend(again)
	}
}

// overdue removes and returns the leases that were not renewed in time. If the process stood still,
// those that the store still has are renewed at once.
func (k *Keeper) overdue(now time.Time, stood bool) (all []*Holding) {
	for _, h := range k.held {
		switch {
		case h.until.IsZero() || now.Before(h.until):
		case stood && now.Before(h.latest):
			h.due, h.until = now, h.latest
		default:
			k.drop(h)
			all = append(all, h)
		}
	}
	return all
}

// due returns the leases to renew now, with those that are almost due and fit into the same calls,
// and when to look again.
func (k *Keeper) due(now time.Time) (renewals []*renewal, next time.Time) {
	at := make(map[group]*renewal)
	for _, h := range k.held {
		if g := h.group(); h.Store != nil && !h.renewing && !now.Before(h.due) && at[g] == nil {
			at[g] = &renewal{group: g}
			renewals = append(renewals, at[g])
		}
	}
	next = now.Add(time.Hour)
	for _, h := range k.held {
		if h.until.IsZero() {
			continue
		}
		r := at[h.group()]
		if r != nil && !h.renewing && h.due.Before(now.Add(h.TTL/10)) &&
			len(r.leases) < maxPerCall {
			h.renewing = true
			r.leases = append(r.leases, h)
			if h.until.After(r.until) {
				r.until = h.until
			}
		}
		if at := h.next(); at.Before(next) {
			next = at
		}
	}
	return renewals, next
}

func (k *Keeper) renew(r *renewal) {
	ids := make([]string, len(r.leases))
	for i, h := range r.leases {
		ids[i] = h.ID
	}
	sent := time.Now()
	ctx := deadline.Until(context.Background(), r.until)
	left, err := r.store.Renew(ctx, r.scope, r.ttl.Microseconds(), ids)
	k.mu.Lock()
	var lost []*Holding
	var evicted []bool
	for i, h := range r.leases {
		h.renewing = false
		switch {
		case err != nil:
			now := time.Now() // again, until the lease is overdue
			h.due = now.Add(Jitter(max(soon, min(r.ttl/20, h.until.Sub(now)/4))))
		case left[i] > 0:
			h.renewed(sent, time.Duration(left[i])*time.Microsecond)
		case k.drop(h): // otherwise it was released meanwhile
			lost, evicted = append(lost, h), append(evicted, left[i] < 0)
			continue
		}
		k.attend(h.next())
	}
	k.mu.Unlock()
	for i, h := range lost {
		k.lost(h, evicted[i])
	}
}

// Extend renews a lease now. The error is ErrLost if the lease is not held.
func (k *Keeper) Extend(ctx context.Context, h *Holding) error {
	if h.Store == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.lost
	}
	sent := time.Now()
	left, err := h.Store.Renew(ctx, h.Scope, h.TTL.Microseconds(), []string{h.ID})
	if err != nil {
		return fmt.Errorf("semaphore: extend: %w", err)
	}
	k.mu.Lock()
	if left[0] > 0 {
		h.renewed(sent, time.Duration(left[0])*time.Microsecond)
		k.attend(h.next())
	}
	lost := left[0] <= 0 && k.drop(h)
	k.mu.Unlock()
	if lost {
		k.lost(h, left[0] < 0)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if left[0] <= 0 && !lost {
		return ErrLost // it was released, or lost before
	}
	return h.lost
}

// lost adopts a lease that is no longer kept, or notifies its holder of the loss.
func (k *Keeper) lost(h *Holding, evicted bool) {
	if !evicted && h.Adopt && h.Store != nil && k.adopt(h) {
		return
	}
	h.lose(ErrLost)
	kind := Lost
	if evicted {
		kind = Evicted
	}
	h.Notify(Notice{Kind: kind})
}

// adopt takes a slot again for a holder whose lease is lost, if there is room.
func (k *Keeper) adopt(h *Holding) bool {
	sent, q := time.Now(), h.Request
	if !h.Ends.IsZero() { // the longest hold does not begin again
		if h.Ends.Sub(sent) < h.TTL/5 { // a lease is believed in for a tenth less than it lasts
			return false
		}
		q.Longest = h.Ends.Sub(sent).Microseconds()
		q.Lease = min(q.Lease, q.Longest)
	}
	g, err := h.Store.Acquire(context.Background(), h.Scope, q)
	if err == nil && g.Status != lease.Held {
		return false
	}
	k.mu.Lock()
	wanted := err == nil && !h.released && !k.closing
	anew := true
	if wanted {
		if h.Fenced {
			anew = h.token.Swap(g.Token) != g.Token
		}
		h.renewed(sent, time.Duration(g.Left)*time.Microsecond)
		k.keep(h)
	}
	k.mu.Unlock()
	if !wanted {
		k.Abandon(h.Store, h.Scope, h.ID, h.TTL)
		return false
	}
	if anew {
		h.Notify(Notice{Kind: Adopted, Took: time.Since(sent)})
	}
	return true
}
