package keeper

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/request"
)

// Hold renews a granted lease from now on. After the end of Close the lease is lost at once.
func (k *Keeper) Hold(h *Holding) {
	h.keeper = k
	k.mu.Lock()
	over := k.over
	if over {
		h.released = true
	} else {
		k.keep(h)
		if h.Fenced {
			k.channels.hold()
		}
	}
	k.mu.Unlock()
	if over {
		h.lose(k.Closed)
		k.Tasks.Go(func() { _ = h.free(context.Background()) }) // on failure the lease ends
	}
}

// Release gives up a lease in any state. If the store fails, the Keeper repeats the release.
func (k *Keeper) Release(ctx context.Context, h *Holding) error {
	k.mu.Lock()
	k.busy++
	h.released = true
	local := h.local
	k.drop(h)
	k.mu.Unlock()
	defer k.End()
	if local != nil {
		_ = local.Release(ctx, h.Scope, []string{h.ID}) // on failure its lease ends
	}
	if err := h.free(ctx); err != nil {
		k.Tasks.Go(func() { k.giveBack(place{h.Store, h.Scope}, h.ID, h.TTL) })
		return err
	}
	return nil
}

// CountIn counts the slots of a semaphore that another store has granted in a local one too, until
// they are released. It takes each of them there, as the part of a request that share returns, and again
// before the lease there ends.
func (k *Keeper) CountIn(
	ctx context.Context, local request.LeaseStore, name string, share func(lease.Request) lease.Request,
) {
	k.mu.Lock()
	var all []*Holding
	for _, h := range k.held {
		if h.Name == name && h.Store != nil && h.Store != local && time.Now().After(h.recount) {
			h.local, h.recount = local, time.Now().Add(h.TTL/2)
			all = append(all, h)
		}
	}
	k.mu.Unlock()
	for _, h := range all {
		_, _ = local.Acquire(ctx, h.Scope, share(h.Request)) // if it has no room, nobody else has
		k.mu.Lock()
		released := h.released
		k.mu.Unlock()
		if released {
			_ = local.Release(ctx, h.Scope, []string{h.ID}) // on failure its lease ends
		}
	}
}

// Abandon releases a slot that may have been granted, in the background.
func (k *Keeper) Abandon(store request.LeaseStore, scope, id string, ttl time.Duration) {
	k.Tasks.Go(func() {
		if err := store.Release(context.Background(), scope, []string{id}); err != nil {
			k.giveBack(place{store, scope}, id, ttl)
		}
	})
}
