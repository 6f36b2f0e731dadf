package core

import (
	"context"
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
	shards [memoryShards]shard // by the key's number; first, so that none begins in the middle of a cache line
	clock  func() int64        // microseconds
}

type shard struct {
	sync.Mutex
	keys  map[uint64]kept // by a number of the key and the limit's suffix
	most  int
	reply []int64 // to be used again by each decision in turn

	_ [80]byte // processors fetch cache lines in pairs
}

// kept is the state of a key under a limit, and of those whose number is the same by chance.
type kept struct {
	path, suffix string
	state        algorithm.State
	next         *kept
}

func newMemoryStore(cfg Config) *memoryStore {
	m := new(memoryStore)
	if cfg.Clock != nil {
		m.clock = func() int64 { return cfg.Clock.Now().UnixMicro() }
	} else {
		start := time.Now()
		base := start.UnixMicro()
		m.clock = func() int64 { return base + time.Since(start).Microseconds() }
	}
	for i := range m.shards {
		m.shards[i].keys = make(map[uint64]kept)
		m.shards[i].most = (cfg.MaxKeys + memoryShards - 1) / memoryShards
	}
	return m
}

func (m *memoryStore) source() Source { return SourceMemory }

// shard is the one that the key of a charge chooses alone, so that its policies take one lock.
func (m *memoryStore) shard(c *charge) uint64 { return (c.number ^ c.from.number) % memoryShards }

func (m *memoryStore) decide(_ context.Context, requests []request) error {
	for i := range requests {
		m.one(&requests[i])
	}
	return nil
}

func (m *memoryStore) one(r *request) {
	var (
		charges [MaxCharges]algorithm.Charge
		in      [MaxCharges]*shard
		held    uint64
		fresh   uint32
	)
	for i := range r.charges {
		n := m.shard(&r.charges[i])
		in[i], held = &m.shards[n], held|1<<n
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
		state, known := in[i].find(c.number, c.key.path, c.from.suffix)
		if !known {
			state = c.limit.NewState()
			fresh |= 1 << i
		}
		at := &charges[i]
		at.State, at.Limit, at.Cost, at.Shadow = state, c.limit, c.cost, c.policy.shadow
		if r.op == algorithmGive {
			at.Receipt = c.receipt()
		}
	}
	terms := algorithm.Terms{Operation: r.op, Bound: r.bound, Receipts: r.receipts}
	reply, changed := algorithm.Run(now, terms, charges[:len(r.charges)], r.reply[:0])
	for ; changed != 0; changed &= changed - 1 {
		i := bits.TrailingZeros32(changed)
		switch c := &r.charges[i]; {
		case charges[i].State.Empty():
			in[i].drop(c.number, c.key.path, c.from.suffix)
		case fresh&(1<<i) != 0:
			in[i].add(c.number, c.key.path, c.from.suffix, charges[i].State, now)
		}
	}
	r.reply = reply
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

// find is one of the states that have a number.
func (s *shard) find(n uint64, path, suffix string) (algorithm.State, bool) {
	at, ok := s.keys[n]
	if !ok {
		return nil, false
	}
	for at.path != path || at.suffix != suffix {
		if at.next == nil {
			return nil, false
		}
		at = *at.next
	}
	return at.state, true
}

// add keeps the state of a new key, and makes room for it.
func (s *shard) add(n uint64, path, suffix string, state algorithm.State, now int64) {
	if len(s.keys) >= s.most {
		s.forget(now)
	}
	at := kept{path: path, suffix: suffix, state: state}
	if other, ok := s.keys[n]; ok {
		at.next = &other
	}
	s.keys[n] = at
}

// forget drops the expired keys of a sample, or the one of which the least is spent.
func (s *shard) forget(now int64) {
	var (
		first   uint64
		least   = math.Inf(1)
		expired bool
		seen    int
	)
	for n, at := range s.keys { // a map is walked from a random place
		if at.state.Expires() <= now {
			s.drop(n, at.path, at.suffix)
			expired = true
		} else if spent := at.state.Spent(now); spent <= least {
			first, least = n, spent
		}
		if seen++; seen == evictionSample {
			break
		}
	}
	if at := s.keys[first]; !expired {
		s.drop(first, at.path, at.suffix)
	}
}

// drop forgets one of those that have a number.
func (s *shard) drop(n uint64, path, suffix string) {
	at := s.keys[n]
	if at.path == path && at.suffix == suffix {
		if at.next == nil {
			delete(s.keys, n)
		} else {
			s.keys[n] = *at.next
		}
		return
	}
	for before := &at; before.next != nil; before = before.next {
		if next := before.next; next.path == path && next.suffix == suffix {
			before.next = next.next
			s.keys[n] = at
			return
		}
	}
}

func (m *memoryStore) reset(_ context.Context, c *charge) error {
	s := &m.shards[m.shard(c)]
	s.Lock()
	s.drop(c.number, c.key.path, c.from.suffix)
	s.Unlock()
	return nil
}
