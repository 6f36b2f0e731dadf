package redisstore

import (
	"hash/maphash"
	"sync/atomic"
)

// crowds remembers by their hashes where the short form would probably decide nothing: scopes where an
// operation found other callers, and no release since has found none, and Blocks that had a state when
// they were asked last. Those of one place displace each other. The zero value remembers none. It is safe
// for concurrent use.
type crowds [8192]atomic.Uint64

var scopeSeed = maphash.MakeSeed()

func hashOf(scope string) uint64 { return maphash.String(scopeSeed, scope) }

func (c *crowds) place(hash uint64) *atomic.Uint64 { return &c[hash%uint64(len(c))] }

func (c *crowds) has(hash uint64) bool { return c.place(hash).Load() == hash }

// note notes that there are others, or a state, or that there are none.
func (c *crowds) note(hash uint64, others bool) {
	at := c.place(hash)
	switch {
	case others:
		at.Store(hash)
	case at.Load() == hash:
		at.Store(0)
	}
}
