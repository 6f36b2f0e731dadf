package redisstore

import (
	"hash/maphash"
	"sync/atomic"
)

// crowds remembers the scopes at which an operation last found other callers, where the short form
// would only cost a round trip. Scopes of one place displace each other. The zero value remembers
// none. It is safe for concurrent use.
type crowds [1024]atomic.Uint64

var scopeSeed = maphash.MakeSeed()

func (c *crowds) place(scope string) (at *atomic.Uint64, hash uint64) {
	hash = maphash.String(scopeSeed, scope)
	return &c[hash%uint64(len(c))], hash
}

func (c *crowds) has(scope string) bool {
	at, hash := c.place(scope)
	return at.Load() == hash
}

// note says whether there were other callers.
func (c *crowds) note(scope string, others bool) {
	at, hash := c.place(scope)
	switch {
	case others:
		at.Store(hash)
	case at.Load() == hash:
		at.Store(0)
	}
}
