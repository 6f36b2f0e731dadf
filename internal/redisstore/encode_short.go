package redisstore

import (
	"slices"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/request"
)

// short reports whether the short form of lua/decide/decide.lua can ask for the batch.
func (b *batch) short() bool {
	for _, l := range b.limits {
		if bucket, ok := l.Limit.(*algorithm.TokenBucket); !ok || !bucket.IsPlain() {
			return false
		}
	}
	n := 0
	for i := range b.entries {
		e := &b.entries[i]
		if !e.merges {
			return false
		}
		for _, c := range e.request.Charges {
			if b.keys[b.keyOf[n]].Limit != c.Limit {
				return false
			}
			n++
		}
	}
	return true
}

// bundleKeys lists the bundles of each entry in KEYS, and gives each charge the place of its bundle
// among those of its entry. It reports whether a key may stand twice in KEYS.
func (b *batch) bundleKeys() (repeats bool) {
	clear(b.keys)
	b.keys = b.keys[:0]
	clear(b.places)
	n := 0
	for i := range b.entries {
		own := len(b.keys)
		for _, c := range b.entries[i].request.Charges {
			at := slices.IndexFunc(b.keys[own:], func(k *request.Charge) bool { return k.Key == c.Key })
			if at < 0 {
				at, b.keys = len(b.keys)-own, append(b.keys, c)
				repeats = repeats || b.repeats(c)
			}
			b.keyOf[n] = at
			n++
		}
		b.entries[i].bundles = len(b.keys) - own
	}
	return repeats
}

// repeats reports whether the bundle of the last of the keys may stand before it.
func (b *batch) repeats(last *request.Charge) bool {
	if len(b.entries) == 1 {
		return false
	}
	if b.places == nil {
		b.places = make(map[uint64]int)
	}
	_, known := b.places[last.KeyHash]
	b.places[last.KeyHash] = 0
	return known
}

// shortRun writes a run of n in the short form. The last run has all keys that are left, so that the
// script needs no number of them if each request is charged once.
func (b *batch) shortRun(first, n int) {
	e := &b.entries[first]
	b.int(-int64(len(e.request.Charges)))
	b.int(int64(e.bundles))
	for i, c := range e.request.Charges {
		reach, capacity := c.Limit.(*algorithm.TokenBucket).Plain()
		b.int(int64(b.keyOf[e.first+i]) + 1)
		b.name(c.Label)
		b.int(reach)
		b.int(capacity)
		b.int(c.Cost.Whole)
	}
	if first+n < len(b.entries) || e.callers > 1 {
		b.int(int64(n))
		b.int(int64(e.callers))
	}
}
