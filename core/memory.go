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
	shards [memoryShards]shard // first, so that none begins in the middle of a cache line
	seed   maphash.Seed
	clock  func() int64 // microseconds
}

type shard struct {
	sync.Mutex
	keys map[string]algorithm.State // by the key's path and the limit's suffix
	most int

	// To be used again by each decision in turn.
	name  []byte
	reply []int64

	_ [56]byte // processors fetch cache lines in pairs
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

// shard is where all the states of a key are, so that its policies take one lock.
func (m *memoryStore) shard(k Key) uint {
	return uint(maphash.String(m.seed, k.path) % memoryShards)
}

// single decides or peeks at one charge, as algorithm.Run would. What it costs is known only when the time is.
func (m *memoryStore) single(op algorithm.Operation, c *Charge, l *limit, r *Result) {
	s := &m.shards[m.shard(c.Key)]
	s.Lock()
	defer s.Unlock() // a Clock may panic
	now := m.clock()
	limit := l.at(now)
	state, known := s.find(c.Key, l.suffix)
	if !known {
		state = limit.NewState()
	}
	changed := limit.Find(state, now)
	cost, charged, terms := limit.Cost(c.Cost), algorithm.Cost{}, algorithm.Terms{Operation: op}
	s.reply = limit.Reply(state, cost, s.reply[:0])
	fits := limit.Fits(state, cost, terms)
	if fits && op != algorithmPeek && cost != charged {
		limit.Commit(state, cost, terms)
		charged, changed = cost, true
	}
	if changed && !known {
		s.add(c.Key, l.suffix, state, now)
	}
	reading := limit.Read(s.reply, charged, c.Cost)
	r.tell(limit, &reading, fits)
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
		in      [MaxCharges]*shard
		held    uint64
		fresh   uint32
	)
	for i := range r.charges {
		n := m.shard(r.charges[i].key)
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
		state, known := in[i].find(c.key, c.suffix)
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
	reply, changed := algorithm.Run(now, r.op, r.bound, charges[:len(r.charges)], r.reply[:0])
	for fresh &= changed; fresh != 0; fresh &= fresh - 1 {
		i := bits.TrailingZeros32(fresh)
		in[i].add(r.charges[i].key, r.charges[i].suffix, charges[i].State, now)
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

// find is the state of a key. It makes the name where the last one was: a decision is to leave no garbage.
func (s *shard) find(k Key, suffix string) (algorithm.State, bool) {
	s.name = append(append(s.name[:0], k.path...), suffix...)
	state, ok := s.keys[string(s.name)]
	return state, ok
}

// add keeps the state of a new key, and makes room for it.
func (s *shard) add(k Key, suffix string, state algorithm.State, now int64) {
	if len(s.keys) >= s.most {
		s.forget(now)
	}
	s.keys[k.path+suffix] = state
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

func (m *memoryStore) reset(_ context.Context, c *charge) error {
	s := &m.shards[m.shard(c.key)]
	s.Lock()
	delete(s.keys, c.key.path+c.suffix)
	s.Unlock()
	return nil
}
