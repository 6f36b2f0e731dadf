package plans

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

const shards = 64

// cache keeps what is known of tenants. Shards have locks of their own, which no reader takes: on a
// busy process, readers of one tenant would wait for each other at a lock.
type cache struct {
	seeds  [2]maphash.Seed
	shards []shard
}

// digest is a hash of 128 bits by which a tenant is kept, under seeds that nobody knows. So a
// tenant that is looked up among many costs fewer reads of memory than by its name.
type digest struct{ a, b uint64 }

// shard keeps a bounded number of tenants in a hash table of lists. The ring is that of the CLOCK
// algorithm: the hand passes over a tenant that was asked for since it last passed, and evicts the
// next.
type shard struct {
	table []atomic.Pointer[tenant]
	mu    sync.Mutex // held to write
	ring  []*tenant
	hand  int
	most  int
	_     [64]byte // so that two shards share no cache line
}

// tenant is one that is kept in memory. What is not atomic is immutable, or guarded by the lock of
// its shard.
type tenant struct {
	digest digest
	next   atomic.Pointer[tenant] // in the list
	change atomic.Uint64          // counts the changes: what is known of an earlier one is not fresh
	known  known                  // immutable; the zero value at first
	used   atomic.Bool            // since the hand last passed
	place  int                    // guarded: in the ring
	flight *flight                // guarded: the attempt that is under way, or nil
}

// known is what is known of a tenant.
type known struct {
	until    time.Duration // it is fresh, by Plans.now; 0 if nothing is known
	epoch    uint64
	change   uint64
	resolved bool          // Resolve has succeeded, now or before
	failed   bool          // the last attempt failed, in part at least
	unasked  bool          // Resolve was not called, because the plan is that of the override
	answered time.Duration // until then the answer of Resolve is fresh, whatever else has failed
	plan     string        // as Resolve said; empty is the default
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
		c.shards[i].table = make([]atomic.Pointer[tenant], c.shards[i].most)
	}
	return c
}

func (c *cache) digest(name string) digest {
	return digest{maphash.String(c.seeds[0], name), maphash.String(c.seeds[1], name)}
}

func (c *cache) shard(d digest) *shard { return &c.shards[d.a%uint64(len(c.shards))] }

func (s *shard) list(d digest) *atomic.Pointer[tenant] { return &s.table[d.b%uint64(len(s.table))] }

// find returns a tenant, or nil if it is not kept. A caller without the lock may miss a tenant
// while another one of its list is written.
func (s *shard) find(d digest) *tenant {
	t := s.list(d).Load()
	for t != nil && t.digest != d {
		t = t.next.Load()
	}
	return t
}

// use is find, and keeps the tenant from being evicted soon.
func (s *shard) use(d digest) *tenant {
	t := s.find(d)
	if t != nil && !t.used.Load() {
		t.used.Store(true)
	}
	return t
}

// unchanged reports whether something is known, and nothing is said to have changed since.
func (t *tenant) unchanged(epoch uint64) bool {
	return t.known.until > 0 && t.known.epoch == epoch && t.known.change == t.change.Load()
}

// take returns a tenant that is kept from now on. The caller holds mu.
func (s *shard) take(d digest) *tenant {
	if t := s.find(d); t != nil {
		return t
	}
	t := &tenant{digest: d, place: s.hand}
	if len(s.ring) < s.most {
		t.place = len(s.ring)
		s.ring = append(s.ring, t)
	} else {
		for s.ring[s.hand].used.Swap(false) {
			s.hand = (s.hand + 1) % len(s.ring)
		}
		s.unlink(s.ring[s.hand])
		t.place = s.hand
		s.ring[s.hand] = t
		s.hand = (s.hand + 1) % len(s.ring)
	}
	s.link(t)
	return t
}

// learned replaces a tenant by one of which k is known, unless it was evicted. The caller holds mu.
func (s *shard) learned(t *tenant, k known) {
	if s.find(t.digest) != t {
		return
	}
	next := &tenant{digest: t.digest, known: k, place: t.place}
	next.change.Store(t.change.Load())
	next.used.Store(t.used.Load())
	s.link(next) // before the other one, so that readers find one of them
	s.unlink(t)
	s.ring[t.place] = next
}

func (s *shard) link(t *tenant) {
	list := s.list(t.digest)
	t.next.Store(list.Load())
	list.Store(t)
}

func (s *shard) unlink(t *tenant) {
	at := s.list(t.digest)
	for at.Load() != t {
		at = &at.Load().next
	}
	at.Store(t.next.Load()) // a reader at t goes on from there
}

// changed makes what is known of a tenant no longer fresh.
func (c *cache) changed(name string) {
	d := c.digest(name)
	s := c.shard(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.find(d); t != nil {
		t.change.Add(1)
	}
}
