package core

import (
	"context"
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
)

const (
	memoryShards = 64
	// evictionSample is how many keys a full shard looks at for the one to forget.
	evictionSample = 16
)

// memoryStore keeps state in this process. A full shard forgets, of a sample, what has expired, which loses nothing, or
// else the key of which the least part of its limit is spent. To make an exhausted key forgotten an attacker must exhaust
// each of many others.
type memoryStore struct {
	seed   maphash.Seed
	clock  func() int64 // microseconds
	shards [memoryShards]shard
}

type shard struct {
	sync.Mutex
	keys map[string]algorithm.State
	most int
	_    [40]byte // a shard has its cache line to itself
}

func newMemoryStore(cfg Config) *memoryStore {
	m := &memoryStore{seed: maphash.MakeSeed()}
	if cfg.Clock != nil {
		m.clock = func() int64 { return cfg.Clock.Now().UnixMicro() }
	} else {
		start := time.Now()
		base := start.UnixMicro()
		m.clock = func() int64 { return base + time.Since(start).Microseconds() }
	}
	for i := range m.shards {
		m.shards[i].keys = make(map[string]algorithm.State)
		m.shards[i].most = (cfg.MaxKeys + memoryShards - 1) / memoryShards
	}
	return m
}

func (m *memoryStore) source() Source { return SourceMemory }

func (m *memoryStore) shard(name string) uint {
	return uint(maphash.String(m.seed, name) % memoryShards)
}

func (m *memoryStore) decide(_ context.Context, requests []request) error {
	for i := range requests {
		m.one(&requests[i])
	}
	return nil
}

func (m *memoryStore) one(r *request) {
	var (
		charges [MaxCharges]algorithm.Charge
		at      [MaxCharges]uint
		held    uint64
		fields  int
	)
	for i := range r.charges {
		at[i] = m.shard(r.charges[i].name)
		held |= 1 << at[i]
		fields += r.charges[i].limit.Fields()
	}
	// Always in the same order, so that two requests never wait for each other.
	for rest := held; rest != 0; rest &= rest - 1 {
		m.shards[bits.TrailingZeros64(rest)].Lock()
	}
	defer func() {
		for rest := held; rest != 0; rest &= rest - 1 {
			m.shards[bits.TrailingZeros64(rest)].Unlock()
		}
	}()
	now := m.clock()
	for i := range r.charges {
		c := &r.charges[i]
		if p, ok := c.limit.(algorithm.Periodic); ok {
			c.limit = p.At(now)
		}
		state, ok := m.shards[at[i]].keys[c.name]
		if !ok {
			state = c.limit.NewState()
		}
		charges[i] = algorithm.Charge{State: state, Limit: c.limit, Cost: c.cost, Shadow: c.policy.shadow}
		if r.op == algorithmGive {
			charges[i].Receipt = c.receipt()
		}
	}
	reply, changed := algorithm.Run(now, r.op, r.bound, charges[:len(r.charges)], make([]int64, 0, 1+fields))
	for ; changed != 0; changed &= changed - 1 {
		i := bits.TrailingZeros32(changed)
		m.shards[at[i]].put(r.charges[i].name, charges[i].State, now)
	}
	r.verdict, reply = reply[0], reply[1:]
	if r.op == algorithmGive {
		return
	}
	for i := range r.charges {
		n := r.charges[i].limit.Fields()
		r.charges[i].reply, reply = reply[:n:n], reply[n:]
	}
	r.settle()
}

// put keeps the state of a key, and makes room for a new one.
func (s *shard) put(name string, state algorithm.State, now int64) {
	if _, ok := s.keys[name]; !ok && len(s.keys) >= s.most {
		s.forget(now)
	}
	s.keys[name] = state
}

// forget drops the expired keys of a sample, or the one of which the least is spent.
func (s *shard) forget(now int64) {
	var (
		first  string
		least  = math.Inf(1)
		before = len(s.keys)
		seen   int
	)
	for name, state := range s.keys { // a map is walked from a random place
		if state.Expires() <= now {
			delete(s.keys, name)
		} else if spent := state.Spent(now); spent <= least {
			first, least = name, spent
		}
		if seen++; seen == evictionSample {
			break
		}
	}
	if len(s.keys) == before {
		delete(s.keys, first)
	}
}

func (m *memoryStore) reset(_ context.Context, name string) error {
	s := &m.shards[m.shard(name)]
	s.Lock()
	delete(s.keys, name)
	s.Unlock()
	return nil
}
