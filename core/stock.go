package core

import (
	"context"
	"sync/atomic"
	"time"
)

// stock is what is there of one key; at first nothing, so that the second to ask is known to be that.
type stock struct {
	policy *Policy
	key    Key
	until  time.Duration
	charge charge // what there was, as it was charged
	left   atomic.Int64

	waiting *atomic.Int64 // units that callers wait for, of the key's next stock too
	busy    atomic.Pointer[busy]
}

// busy is who fills a stock anew, or takes it away, and makes it void by that. Nobody else does so meanwhile.
type busy struct {
	done chan struct{}
	dry  bool // nothing came
}

func (s *stock) of(policy *Policy, key Key) bool { return s.policy == policy && s.key == key }

// back is what gives back so many units of it.
func (s *stock) back(units int64) charge {
	c := s.charge
	c.cost = c.limit.Cost(units)
	return c
}

// begin makes the caller the one who is busy with the stock, or returns nil where another one is.
func (s *stock) begin() *busy {
	b := &busy{done: make(chan struct{})}
	if !s.busy.CompareAndSwap(nil, b) {
		return nil
	}
	return b
}

func (s *stock) end(b *busy) {
	s.busy.Store(nil)
	close(b.done)
}

// take uses so many units, if they are there.
func (s *stock) take(units int64) bool {
	for left := s.left.Load(); left >= units; left = s.left.Load() {
		if s.left.CompareAndSwap(left, left-units) {
			return true
		}
	}
	return false
}

// wait returns when nobody is busy with the stock any more, and whether that was of use.
func (s *stock) wait(ctx context.Context, units int64) (bool, error) {
	b := s.busy.Load()
	if b == nil {
		return true, nil
	}
	s.waiting.Add(units)
	defer s.waiting.Add(-units)
	select {
	case <-b.done:
		return !b.dry, nil
	case <-ctx.Done():
	case <-left(ctx):
	}
	return false, leaving(ctx)
}
