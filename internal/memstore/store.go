// Package memstore decides requests on state in this process.
package memstore

import (
	"bytes"
	"context"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/request"
)

const shards = 64

// Store is a request.Store in memory. Its methods do not fail. It is safe for concurrent use and
// must not be copied.
type Store struct {
	shards [shards]shard // by KeyHash; first, so that no shard begins inside a cache line
	clock  func() int64  // microseconds
}

// New returns a store of at most maxKeys keys, rounded up to a multiple of 64, on a clock of
// microseconds since 1970.
func New(maxKeys int, clock func() int64) *Store {
	s := &Store{clock: clock}
	for i := range s.shards {
		s.shards[i].keys = make(map[uint64]*record)
		s.shards[i].most = (maxKeys + shards - 1) / shards
	}
	return s
}

// shard returns the one that the key picks. All policies on one key are in one shard, so that a
// request takes one lock.
func (s *Store) shard(c *request.Charge) uint64 { return c.KeyHash % shards }

func (s *Store) of(c *request.Charge) *shard { return &s.shards[s.shard(c)] }

// Answer implements request.Store.
func (s *Store) Answer(_ context.Context, c *request.Charge) ([]byte, error) {
	in := s.of(c)
	in.Lock()
	defer in.Unlock()
	if e := in.record(c); e != nil && e.answer != nil && s.clock() < e.answer.until {
		return bytes.Clone(e.answer.text), nil
	}
	return nil, nil
}

// Reset implements request.Store.
func (s *Store) Reset(_ context.Context, c *request.Charge) error {
	in := s.of(c)
	in.Lock()
	defer in.Unlock()
	e := in.record(c)
	switch {
	case e == nil:
	case !e.Adjustments.Empty():
		e.State, e.Holds, e.answer = nil, nil, nil
	default:
		in.remove(c.StateHash(), e)
	}
	return nil
}

// Decide implements request.Store.
func (s *Store) Decide(_ context.Context, requests []request.Request) error {
	for i := range requests {
		if err := s.decide(&requests[i]); err != nil {
			return err
		}
	}
	return nil
}

// Scan implements request.Store.
func (s *Store) Scan(
	_ context.Context, suffix string, f func(key, value string, now int64) bool,
) error {
	type stored struct{ key, value string }
	var found []stored // f may use the store
	s.Each(func(key, own string, kept *algorithm.Kept) {
		if own == suffix && kept.State != nil {
			found = append(found, stored{key, kept.State.Value()})
		}
	})
	for _, e := range found {
		if !f(e.key, e.value, s.clock()) {
			break
		}
	}
	return nil
}

// Each calls f with each key, its suffix, and what is kept of it. f must not use the store.
func (s *Store) Each(f func(key, suffix string, kept *algorithm.Kept)) {
	for i := range s.shards {
		in := &s.shards[i]
		in.Lock()
		for _, e := range in.keys {
			for ; e != nil; e = e.next {
				f(e.key, e.suffix, &e.Kept)
			}
		}
		in.Unlock()
	}
}
