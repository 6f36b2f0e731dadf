package keeper

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/request"
)

// renewal is the leases that one call renews.
type renewal struct {
	group
	scopes map[string]*part
	leases int
	until  time.Time // when the first of them ends
}

// group is what the leases of one call have in common.
type group struct {
	store request.LeaseStore
	ttl   time.Duration
	again bool // an earlier call has no answer yet
}

func (h *Holding) group() group { return group{h.Store, h.TTL, h.asking > 0} }

// part is the leases of one scope.
type part struct {
	request.Renewal
	leases []*Holding
}

func newRenewal(g group) *renewal { return &renewal{group: g, scopes: make(map[string]*part)} }

func (r *renewal) add(h *Holding) {
	p := r.scopes[h.Scope]
	if p == nil {
		p = new(part)
		p.Scope, p.Micros = h.Scope, h.TTL.Microseconds()
		r.scopes[h.Scope] = p
	}
	p.IDs, p.leases = append(p.IDs, h.ID), append(p.leases, h)
	if r.leases == 0 || h.until.Before(r.until) {
		r.until = h.until
	}
	r.leases++
}

// look renews the leases that are due, and gives up overdue ones. It renews on its own goroutine, because
// in a process that is short of CPU each new one is late. Before that it sets the time of the next look,
// so a lease that cannot be renewed is lost in time.
func (k *Keeper) look() {
	renewals := k.survey(time.Now())
	for i, r := range renewals {
		if i < len(renewals)-1 {
			k.Tasks.Go(func() { k.renew(r) })
		} else {
			k.Tasks.Run(func() { k.renew(r) })
		}
	}
}

// survey returns what look is to renew, and does the rest of its work.
func (k *Keeper) survey(now time.Time) []*renewal {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timed = false
	for _, h := range k.overdue(now, now.Sub(k.next) > again) {
		k.Tasks.Go(func() { k.lost(h, false) })
	}
	renewals, next := k.due(now)
	if len(k.held) > 0 {
		k.attend(next)
	}
	return renewals
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
// and when to look again. A lease whose renewal is on its way is due again after an eighth of what is
// left of it: the connection may be dead, or make a new one on a slow link.
func (k *Keeper) due(now time.Time) (renewals []*renewal, next time.Time) {
	at := make(map[group]*renewal)
	for _, h := range k.held {
		if g := h.group(); h.renewable() && !now.Before(h.due) && at[g] == nil {
			at[g] = newRenewal(g)
			renewals = append(renewals, at[g])
		}
	}
	next = now.Add(time.Hour)
	for _, h := range k.held {
		if h.until.IsZero() {
			continue
		}
		r := at[h.group()]
		if r != nil && h.renewable() && h.due.Before(now.Add(h.TTL/10)) {
			if r.leases == maxPerCall {
				r = newRenewal(r.group)
				at[r.group], renewals = r, append(renewals, r)
			}
			r.add(h)
			h.asking++
			h.due = now.Add(max(soon, h.until.Sub(now)/8))
		}
		if at := h.next(); at.Before(next) {
			next = at
		}
	}
	return renewals, next
}

// renew asks the store once.
func (k *Keeper) renew(r *renewal) {
	sent := time.Now()
	ctx := deadline.Until(context.Background(), r.until)
	asked := make([]*request.Renewal, 0, len(r.scopes))
	for _, p := range r.scopes {
		asked = append(asked, &p.Renewal)
	}
	r.store.RenewAll(ctx, asked, r.again)
	k.mu.Lock()
	var lost []*Holding
	var evicted []bool
	for _, p := range r.scopes {
		for i, h := range p.leases {
			h.asking--
			switch {
			case p.Err != nil && h.sent.After(sent): // a later renewal was answered
			case p.Err != nil:
				now := time.Now() // again, until the lease is overdue
				h.due = now.Add(Jitter(max(soon, min(r.ttl/20, h.until.Sub(now)/4))))
			case p.Left[i] > 0:
				h.renewed(sent, time.Duration(p.Left[i])*time.Microsecond)
			case k.drop(h): // otherwise it was released meanwhile
				lost, evicted = append(lost, h), append(evicted, p.Left[i] < 0)
				continue
			}
			k.attend(h.next())
		}
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
	err, kind := ErrLost, Lost
	if evicted {
		kind = Evicted
	}
	if evicted || !h.Ends.IsZero() && time.Until(h.Ends) < h.TTL/5 { // as in adopt
		err = ErrEnded
	}
	h.lose(err)
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
	var g lease.Grant
	err := breaker.Safely(func() (err error) {
		g, err = h.Store.Acquire(context.Background(), h.Scope, q)
		return err
	})
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
