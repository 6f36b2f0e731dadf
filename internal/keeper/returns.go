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

// maxReturns bounds the slots whose release is repeated.
const maxReturns = 10_000

// again is the first pause between two attempts to give back a slot, and soon the shortest between two
// renewals.
const (
	again = 250 * time.Millisecond
	soon  = 10 * time.Millisecond
)

// Abandon releases a slot that may have been granted, in the background.
func (k *Keeper) Abandon(store request.LeaseStore, scope, id string, ttl time.Duration) {
	k.Tasks.Go(func() {
		if err := store.Release(context.Background(), scope, []string{id}); err != nil {
			k.giveBack(place{store, scope}, id, ttl)
		}
	})
}

// giveBack releases a slot whose release has failed, again and again, for longer than the lease would last:
// a server that stood still may run the acquire when it resumes, and the lease begins then. After the first
// pause each is an eighth of the time since the first failure, and the last one is as long as the lease. While
// the circuit of the server is open it sends nothing, because a client whose connections fail too often makes
// none for a second. When the Keeper is closed, it tries for the last time.
func (k *Keeper) giveBack(p place, id string, ttl time.Duration) {
	defer k.returns.Add(-1)
	if k.returns.Add(1) > maxReturns {
		return // the lease ends
	}
	failed := time.Now()
	until := failed.Add(8 * ttl)
	pause := again
	for open := true; open; pause = max(again, time.Since(failed)/8) {
		open = k.pause(Jitter(pause))
		if time.Now().After(until) {
			return
		}
		if open && !k.Asks(k.done, request.Outermost(k.Prefix, p.scope)) {
			continue
		}
		err := p.store.Release(deadline.Until(context.Background(), until), p.scope, []string{id})
		switch {
		case err == nil:
			return
		case errors.As(err, new(request.Refusal)): // the server does not stand still
			until = failed.Add(ttl)
		}
	}
}

// place is where slots of one scope are.
type place struct {
	store request.LeaseStore
	scope string
}

// slots are ids of leases by the place where they are.
type slots map[place][]string

func (s slots) add(p place, id string) { s[p] = append(s[p], id) }

// release releases all slots at the same time, with one call for each place.
func (s slots) release(ctx context.Context) error {
	var mu sync.Mutex
	var errs []error
	var calls sync.WaitGroup
	for p, ids := range s {
		for some := range slices.Chunk(ids, maxPerCall) {
			calls.Go(func() {
				err := p.store.Release(ctx, p.scope, some)
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			})
		}
	}
	calls.Wait()
	return errors.Join(errs...)
}
