package plans

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

const shards = 64

// cache keeps what is known of tenants. Shards have locks of their own.
type cache struct {
	seeds  [2]maphash.Seed
	shards []shard
}

// digest is a hash of 128 bits by which a tenant is kept, under seeds that nobody knows. So a
// tenant that is looked up among many costs fewer reads of memory than by its name.
type digest struct{ a, b uint64 }

// shard keeps a bounded number of tenants. The ring is that of the CLOCK algorithm: the hand passes
// over a tenant that was asked for since it last passed, and evicts the next.
type shard struct {
	mu      sync.RWMutex
	tenants map[digest]*tenant
	ring    []*tenant
	hand    int
	most    int
	_       [64]byte // so that two shards share no cache line
}

// tenant is one that is kept in memory. The lock of its shard guards it.
type tenant struct {
	digest digest
	change uint64      // counts the changes: what is known of an earlier one is not fresh
	used   atomic.Bool // since the hand last passed
	flight *flight     // the attempt that is under way, or nil
	known  known       // the zero value at first
}

// known is what is known of a tenant.
type known struct {
	until    time.Duration // it is fresh, by Plans.now; 0 if nothing is known
	epoch    uint64
	change   uint64
	resolved bool   // Resolve has succeeded, now or before
	failed   bool   // the last attempt failed, in part at least
	plan     string // as Resolve said; empty is the default
	override *stored
	err      error // why the plan is not known, if it was never resolved
}

func newCache(most int) cache {
	n := shards
	if most < shards {
		n = 1
	}
	c := cache{
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, shards: make([]shard, n),
	}
	for i := range c.shards {
		c.shards[i].most = (most + n - 1) / n
		c.shards[i].tenants = make(map[digest]*tenant)
	}
	return c
}

func (c *cache) digest(name string) digest {
	return digest{maphash.String(c.seeds[0], name), maphash.String(c.seeds[1], name)}
}

func (c *cache) shard(d digest) *shard { return &c.shards[d.a%uint64(len(c.shards))] }

// find returns what is known of a tenant, and whether nothing is said to have changed since.
func (s *shard) find(d digest, epoch uint64) (k known, unchanged bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t := s.tenants[d]
	if t == nil {
		return known{}, false
	}
	if !t.used.Load() {
		t.used.Store(true)
	}
	return t.known, t.unchanged(epoch)
}

func (t *tenant) unchanged(epoch uint64) bool {
	return t.known.until > 0 && t.known.epoch == epoch && t.known.change == t.change
}

// take returns a tenant that is kept from now on. The caller holds mu.
func (s *shard) take(d digest) *tenant {
	if t := s.tenants[d]; t != nil {
		return t
	}
	t := &tenant{digest: d}
	if len(s.ring) < s.most {
		s.ring = append(s.ring, t)
	} else {
		for s.ring[s.hand].used.Swap(false) {
			s.hand = (s.hand + 1) % len(s.ring)
		}
		delete(s.tenants, s.ring[s.hand].digest)
		s.ring[s.hand] = t
		s.hand = (s.hand + 1) % len(s.ring)
	}
	s.tenants[d] = t
	return t
}

// changed makes what is known of a tenant no longer fresh.
func (c *cache) changed(name string) {
	d := c.digest(name)
	s := c.shard(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tenants[d]; t != nil {
		t.change++
	}
}
