package keeper

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Sleep waits, or returns the error of ctx or Closed if one of these is first.
func (k *Keeper) Sleep(ctx context.Context, wait time.Duration) error {
	return k.Await(ctx, wait, nil)
}

// Await is Sleep, and ends when the channel is closed too.
func (k *Keeper) Await(ctx context.Context, wait time.Duration, woken <-chan struct{}) error {
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-woken:
		return nil
	case <-k.closed:
		return k.Closed
	case <-ctx.Done():
		return fmt.Errorf("core: %w", ctx.Err())
	}
}

// pause waits for d, or until a server answers again. It returns false, and earlier, if Close gives up what
// is left.
func (k *Keeper) pause(d time.Duration) bool {
	k.mu.Lock()
	answers := k.answers
	k.mu.Unlock()
	select {
	case <-time.After(d):
		return true
	case <-answers:
		return true
	case <-k.done.Done():
		return false
	}
}

// Close wakes all waiters, lets holders finish until ctx ends, and gives up what is left then.
func (k *Keeper) Close(ctx context.Context) error {
	k.mu.Lock()
	if !k.closing {
		close(k.closed)
	}
	k.closing = true
	k.waiting.wake()
	if k.idle == nil {
		k.idle = make(chan struct{})
	}
	idle := k.idle
	k.rest()
	k.mu.Unlock()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = ctx.Err()
	}
	k.mu.Lock()
	k.over = true
	if k.timer != nil {
		k.timer.Stop()
	}
	rest := k.held
	k.held = make(map[string]*Holding)
	for _, h := range rest {
		h.released = true
	}
	k.mu.Unlock()
	k.stop()
	held := make(slots)
	for _, h := range rest {
		h.lose(k.Closed)
		if h.Store != nil {
			held.add(place{h.Store, h.Scope}, h.ID)
		}
	}
	return errors.Join(err, held.release(context.WithoutCancel(ctx)))
}
