package redisstore

import (
	"hash/maphash"
	"sync/atomic"
)

// crowds remembers the scopes where the short form would probably decide nothing: an operation
// found other callers there, and no release since has found none. Scopes of one place displace each
// other. The zero value remembers none. It is safe for concurrent use.
type crowds [8192]atomic.Uint64

var scopeSeed = maphash.MakeSeed()

func (c *crowds) place(scope string) (at *atomic.Uint64, hash uint64) {
	hash = maphash.String(scopeSeed, scope)
	return &c[hash%uint64(len(c))], hash
}

func (c *crowds) has(scope string) bool {
	at, hash := c.place(scope)
	return at.Load() == hash
}

// note notes that there were other callers, or that there were none.
func (c *crowds) note(scope string, others bool) {
	at, hash := c.place(scope)
	switch {
	case others:
		at.Store(hash)
	case at.Load() == hash:
		at.Store(0)
	}
}
