package keeper

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/request"
)

// maxReturns bounds the slots that are sent again.
const maxReturns = 10_000

// again is the first pause between two attempts to give back a slot.
const again = 250 * time.Millisecond

// giveBack is a slot whose release failed. It is sent again for longer than the lease would last,
// because a server that stands still may have the acquire to run when it goes on: the lease begins
// then. After the first, each pause is an eighth of the time since the first failure, and the last
// is as long as the lease.
type giveBack struct {
	place
	id     string
	ttl    time.Duration
	failed time.Time // first
	due    time.Time
	until  time.Time // is forgotten then
	sent   bool      // and not answered
}

// place is where slots of one scope are.
type place struct {
	store request.LeaseStore
	scope string
}

// Abandon releases a slot that may have been granted, in the background.
func (k *Keeper) Abandon(store request.LeaseStore, scope, id string, ttl time.Duration) {
	k.Tasks.Go(func() {
		if _, err := store.Release(context.Background(), scope, []string{id}); err != nil {
			k.releaseLater(place{store, scope}, id, ttl)
		}
	})
}

// releaseLater releases a slot whose release failed.
func (k *Keeper) releaseLater(p place, id string, ttl time.Duration) {
	now := time.Now()
	g := &giveBack{
		place: p, id: id, ttl: ttl, failed: now, due: now.Add(Jitter(again)), until: now.Add(8 * ttl),
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return // the lease ends
	}
	if len(k.returns) >= maxReturns {
		k.returns = slices.Delete(k.returns, 0, 1) // the oldest, whose lease ends first
	}
	k.returns = append(k.returns, g)
	k.attend(g.due)
}

// dueReturns returns the slots to give back now, those of a scope together, and when to look again.
// It forgets those that are over.
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
		case now.Add(again / 2).Before(g.due): // those that are almost due go together
			if g.due.Before(next) {
				next = g.due
			}
		default:
			g.sent = true
			i, ok := at[g.place]
			if !ok || len(due[i]) == maxRenewed {
				i, at[g.place] = len(due), len(due)
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
	for i, g := range all {
		ids[i] = g.id
	}
	ctx := deadline.Until(context.Background(), all[0].until)
	_, err := all[0].store.Release(ctx, all[0].scope, ids)
	now := time.Now()
	due := now.Add(Jitter(max(again, now.Sub(all[0].failed)/8)))
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, g := range all {
		g.sent, g.due = false, due
		switch {
		case err == nil:
			g.due, g.until = now, time.Time{}
		case errors.As(err, new(redis.Error)): // the server does not stand still
			g.until = g.failed.Add(g.ttl)
		}
	}
	k.attend(all[0].due)
}

// slots are ids of leases by the place where they are.
type slots map[place][]string

func (s slots) add(p place, id string) { s[p] = append(s[p], id) }

// release releases all slots at the same time, those of a place together.
func (s slots) release(ctx context.Context) error {
	var mu sync.Mutex
	var errs []error
	var calls sync.WaitGroup
	for p, ids := range s {
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
