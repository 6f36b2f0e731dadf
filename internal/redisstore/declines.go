package redisstore

import (
	"hash/maphash"
	"sync/atomic"
)

// declines remembers by hash where a short form would probably decide nothing: scopes where an
// operation found other callers, and no release since has found none, and Blocks that had a state when
// they were asked last. Those of one place displace each other. The zero value remembers none. It is safe
// for concurrent use.
type declines [8192]atomic.Uint64

var scopeSeed = maphash.MakeSeed()

func hashOf(scope string) uint64 { return maphash.String(scopeSeed, scope) }

func (d *declines) place(hash uint64) *atomic.Uint64 { return &d[hash%uint64(len(d))] }

func (d *declines) has(hash uint64) bool { return d.place(hash).Load() == hash }

// note notes that there are others, or a state, or that there are none.
func (d *declines) note(hash uint64, others bool) {
	at := d.place(hash)
	switch {
	case others:
		at.Store(hash)
	case at.Load() == hash:
		at.Store(0)
	}
}
