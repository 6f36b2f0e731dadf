package semaphore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/lease"
)

// Holder is a holder of a Semaphore.
type Holder struct {
	ID     string   // of the lease, for Evict
	Name   string   // its Request.ID, or empty
	Key    core.Key // the innermost one; its Parts are nil if NewKey has replaced one by a hash
	Token  int64
	Age    time.Duration
	Left   time.Duration // until the lease ends unless it is renewed; 0 if it is overdue
	Weight int64
	Meta   map[string]string
}

// entries returns the holders and the waiters below the outermost part of a key, and the time.
func (s made) entries(
	ctx context.Context, key core.Key,
) (now int64, entries []lease.Entry, err error) {
	return s.hub.Leases.List(ctx, s.scope(inCore.Outermost(key)))
}

// Holders returns the holders of slots below the outermost part of a key, in the order in which
// their leases end, and the number of waiters. While Redis fails it returns the error of Redis. It
// does not list slots that a process granted alone meanwhile.
func (s *Semaphore) Holders(
	ctx context.Context, key core.Key,
) (holders []Holder, waiting int, err error) {
	if key == (core.Key{}) {
		return nil, 0, fmt.Errorf("%w: there is none", core.ErrKey)
	}
	now, entries, err := s.slots.entries(ctx, key)
	if err != nil {
		return nil, 0, err
	}
	for _, e := range entries {
		if e.Left < 0 {
			waiting++
			continue
		}
		r, err := lease.Parse(e.Record)
		if err != nil {
			return nil, 0, fmt.Errorf("semaphore: holders: %w", err)
		}
		h := Holder{
			ID:    e.ID,
			Name:  ownID(e.ID),
			Token: r.Token,
			Age:   time.Duration(now-r.Granted) * time.Microsecond,
			Left:  time.Duration(e.Left) * time.Microsecond,
		}
		last := r.Levels[len(r.Levels)-1]
		h.Key, h.Weight, h.Meta = inCore.KeyAt(last.Node), last.Weight, r.Values()
		holders = append(holders, h)
	}
	return holders, waiting, nil
}

// maxEvicted bounds the ids of one script, which writes them all at once.
const maxEvicted = 256

// Evict takes the slots of holders away, and returns how many of them it found. Their leases are
// lost, even with LossAdopt. A holder's process learns of it at once while it is subscribed, as
// it is from its first slot on, and otherwise when it renews the lease. While Redis fails, Evict
// returns the error of Redis, and how many slots it had taken away before.
func (s *Semaphore) Evict(ctx context.Context, key core.Key, ids ...string) (int, error) {
	if key == (core.Key{}) {
		return 0, fmt.Errorf("%w: there is none", core.ErrKey)
	}
	n := 0
	for some := range slices.Chunk(ids, maxEvicted) {
		found, err := s.hub.Leases.Evict(ctx, s.scope(inCore.Outermost(key)), some)
		for _, was := range found {
			if was > 0 {
				n++
			}
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Usage returns how much of the limit at each key is taken by holders, as their weights add up. The
// keys share the outermost part, as those of Request.Caps. It reads all holders below that
// part, in one round trip. While Redis fails it returns the error of Redis. It does not count slots
// that a process granted alone meanwhile.
func (s *Semaphore) Usage(ctx context.Context, keys ...core.Key) (used []int64, err error) {
	for i, k := range keys {
		switch {
		case k == core.Key{}:
			return nil, fmt.Errorf("%w: key %d is missing", core.ErrKey, i)
		case inCore.Outermost(k) != inCore.Outermost(keys[0]):
			return nil, fmt.Errorf("%w: key %d has another outermost part", core.ErrKey, i)
		}
	}
	used = make([]int64, len(keys))
	if len(keys) == 0 {
		return used, nil
	}
	_, entries, err := s.slots.entries(ctx, keys[0])
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Left <= 0 { // a waiter, or a holder whose lease has ended
			continue
		}
		r, err := lease.Parse(e.Record)
		if err != nil {
			return nil, fmt.Errorf("semaphore: usage: %w", err)
		}
		for i, k := range keys {
			for _, level := range r.Levels {
				if level.Node == k.String() {
					used[i] += level.Weight
				}
			}
		}
	}
	return used, nil
}
