package series

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Table is a map that grows and forgets nothing. Get takes no lock and allocates nothing for a key
// that is known for long, which a sync.Map does for a key that is no pointer. The zero value is
// empty. It is safe for concurrent use.
type Table[K comparable, V any] struct {
	read atomic.Pointer[map[K]V] // is not changed

	mu     sync.Mutex
	all    map[K]V // nil if read has all
	misses int     // of read
}

// Get returns the value of a key.
func (t *Table[K, V]) Get(k K) (v V, ok bool) {
	if read := t.read.Load(); read != nil {
		if v, ok = (*read)[k]; ok {
			return v, true
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.missed(k)
}

// Make returns the value of a key, which create makes if there is none yet.
func (t *Table[K, V]) Make(k K, create func() V) V {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v, ok := t.missed(k); ok {
		return v
	}
	if t.all == nil {
		t.all = make(map[K]V)
		if read := t.read.Load(); read != nil {
			maps.Copy(t.all, *read)
		}
	}
	v := create()
	t.all[k] = v
	return v
}

// missed looks for a key that was not read. As many misses as there are keys pay for a copy of all.
// The lock is held.
func (t *Table[K, V]) missed(k K) (v V, ok bool) {
	if t.all == nil {
		if read := t.read.Load(); read != nil {
			v, ok = (*read)[k]
		}
		return v, ok
	}
	v, ok = t.all[k]
	if t.misses++; t.misses > len(t.all) {
		all := t.all
		t.read.Store(&all)
		t.all, t.misses = nil, 0
	}
	return v, ok
}
