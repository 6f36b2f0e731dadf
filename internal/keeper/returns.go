package keeper

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/request"
)

// maxReturns bounds the slots that are sent again.
const maxReturns = 10_000

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

// place is where slots of one scope are.
type place struct {
	store request.LeaseStore
	scope string
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
	if k.over || len(k.returns) >= maxReturns {
		return // the lease ends
	}
	k.returns = append(k.returns, g)
	k.attend(g.due)
}

// dueReturns returns the slots to give back now, those of a scope together, and when to look again.
// It forgets those whose lease has ended.
func (k *Keeper) dueReturns(now time.Time) (due [][]*giveBack, next time.Time) {
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

// giveUp sends releases that failed once more. If they fail again, the leases end.
func (k *Keeper) giveUp(ctx context.Context, returns []*giveBack) {
	ids := make(map[place][]string)
	for _, g := range returns {
		p := place{g.store, g.scope}
		ids[p] = append(ids[p], g.id)
	}
	_ = release(ctx, ids)
}

// release releases slots, those of a scope together and all at the same time.
func release(ctx context.Context, ids map[place][]string) error {
	var mu sync.Mutex
	var errs []error
	var calls sync.WaitGroup
	for p, ids := range ids {
		for some := range slices.Chunk(ids, maxRenewed) {
			calls.Go(func() {
				_, err := p.store.Release(ctx, p.scope, some)
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			})
		}
	}
	calls.Wait()
	return errors.Join(errs...)
}
