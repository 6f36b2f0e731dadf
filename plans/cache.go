package plans

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const shards = 64

// cache keeps what is known of tenants. Shards have locks of their own.
type cache struct {
	seed   maphash.Seed
	shards []shard
}

// shard keeps a bounded number of tenants. The ring is that of the CLOCK algorithm: the hand passes
// over a tenant that was asked for since it last passed, and evicts the next.
type shard struct {
	mu      sync.RWMutex
	tenants map[string]*tenant
	ring    []*tenant
	hand    int
	most    int
	_       [64]byte // so that two shards share no cache line
}

// tenant is one that is kept in memory.
type tenant struct {
	name   string
	known  atomic.Pointer[known] // nil at first
	change atomic.Uint64         // what is known of an earlier one is not fresh
	used   atomic.Bool           // since the hand last passed
	flight *flight               // that is under way, or nil; guarded by shard.mu
}

// known is what is known of a tenant. It is immutable.
type known struct {
	plan     string // as Resolve said; empty is the default
	resolved bool   // Resolve has succeeded, now or before
	failed   bool   // the last try failed, in part at least
	override *stored
	err      error         // why the plan is not known, if it was never resolved
	until    time.Duration // it is fresh, by Plans.now
	epoch    uint64
	change   uint64
}

func newCache(most int) cache {
	n := shards
	if most < shards {
		n = 1
	}
	c := cache{seed: maphash.MakeSeed(), shards: make([]shard, n)}
	for i := range c.shards {
		c.shards[i].most = (most + n - 1) / n
		c.shards[i].tenants = make(map[string]*tenant)
	}
	return c
}

func (c *cache) shard(name string) *shard {
	return &c.shards[maphash.String(c.seed, name)%uint64(len(c.shards))]
}

// find returns a tenant, or nil if it is not kept.
func (s *shard) find(name string) *tenant {
	s.mu.RLock()
	t := s.tenants[name]
	s.mu.RUnlock()
	if t != nil && !t.used.Load() {
		t.used.Store(true)
	}
	return t
}

// take returns a tenant that is kept from now on. The caller holds mu.
func (s *shard) take(name string) *tenant {
	if t := s.tenants[name]; t != nil {
		return t
	}
	t := &tenant{name: strings.Clone(name)} // name may be a part of a longer key
	if len(s.ring) < s.most {
		s.ring = append(s.ring, t)
	} else {
		for s.ring[s.hand].used.Swap(false) {
			s.hand = (s.hand + 1) % len(s.ring)
		}
		delete(s.tenants, s.ring[s.hand].name)
		s.ring[s.hand] = t
		s.hand = (s.hand + 1) % len(s.ring)
	}
	s.tenants[t.name] = t
	return t
}

// changed makes what is known of a tenant no longer fresh.
func (c *cache) changed(name string) {
	s := c.shard(name)
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.tenants[name]; t != nil {
		t.change.Add(1)
	}
}
