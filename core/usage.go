package core

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/internal/lease"
)

// Usage returns how much of the limit at each key is taken by holders, as their weights add up. The
// keys share the outermost part, as those of SlotRequest.Levels. It reads all holders below that
// part, in one round trip. While Redis fails it returns the error of Redis. It does not count slots
// that a process granted alone meanwhile.
func (s *Semaphore) Usage(ctx context.Context, keys ...Key) (used []int64, err error) {
	for i, k := range keys {
		switch {
		case k.outer == 0:
			return nil, fmt.Errorf("%w: key %d is missing", ErrKey, i)
		case k.outermost() != keys[0].outermost():
			return nil, fmt.Errorf("%w: key %d has another outermost part", ErrKey, i)
		}
	}
	used = make([]int64, len(keys))
	if len(keys) == 0 {
		return used, nil
	}
	_, entries, err := s.gate.leases.List(ctx, s.scope(keys[0]))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Left <= 0 { // a waiter, or a holder whose lease has ended
			continue
		}
		r, err := lease.Parse(e.Record)
		if err != nil {
			return nil, fmt.Errorf("core: holders: %w", err)
		}
		for i, k := range keys {
			for _, level := range r.Levels {
				if level.Node == k.path {
					used[i] += level.Weight
				}
			}
		}
	}
	return used, nil
}
