package keeper

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/request"
)

// again is the time between two attempts to give back a slot.
const again = 250 * time.Millisecond

// giveBack is a slot whose release failed. It is sent again until the lease has ended.
type giveBack struct {
	store request.LeaseStore
	scope string
	id    string
	due   time.Time
	until time.Time
	sent  bool // and not answered
}

// Abandon releases a slot that may have been granted, in the background.
func (k *Keeper) Abandon(store request.LeaseStore, scope, id string, ttl time.Duration) {
	g := &giveBack{store: store, scope: scope, id: id, until: time.Now().Add(ttl), sent: true}
	k.Tasks.Go(func() {
		if _, err := store.Release(context.Background(), scope, []string{id}); err != nil {
			k.giveBack(g)
		}
	})
}

// giveBack releases a slot later.
func (k *Keeper) giveBack(g *giveBack) {
	g.sent, g.due = false, time.Now().Add(Jitter(again))
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return // the lease ends
	}
	k.returns = append(k.returns, g)
	k.attend(g.due)
}

// dueReturns returns the slots to give back now, those of a scope together, and when to look again.
// It forgets those whose lease has ended.
func (k *Keeper) dueReturns(now time.Time) (due [][]*giveBack, next time.Time) {
	type place struct {
		store request.LeaseStore
		scope string
	}
	at := make(map[place]int)
	next = now.Add(time.Hour)
	rest := k.returns[:0]
	for _, g := range k.returns {
		if now.After(g.until) {
			continue
		}
		rest = append(rest, g)
		switch {
		case g.sent:
		case now.Before(g.due):
			if g.due.Before(next) {
				next = g.due
			}
		default:
			g.sent = true
			p := place{g.store, g.scope}
			i, ok := at[p]
			if !ok || len(due[i]) == maxRenewed {
				i, at[p] = len(due), len(due)
				due = append(due, nil)
			}
			due[i] = append(due[i], g)
		}
	}
	clear(k.returns[len(rest):])
	k.returns = rest
	return due, next
}

// sendBack releases slots of one scope.
func (k *Keeper) sendBack(all []*giveBack) {
	ids := make([]string, len(all))
	until := all[0].until
	for i, g := range all {
		ids[i] = g.id
	}
	ctx := deadline.Until(context.Background(), until)
	_, err := all[0].store.Release(ctx, all[0].scope, ids)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, g := range all {
		g.sent, g.due = false, time.Now().Add(Jitter(again))
		if err == nil {
			g.until = time.Time{} // is forgotten
		}
	}
}
