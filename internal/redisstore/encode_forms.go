package redisstore

import (
	"slices"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

// plainBuckets reports whether lua/decide/buckets.lua can decide these charges. Those of one key stand
// beside each other.
func plainBuckets(charges []*request.Charge) bool {
	for i, c := range charges {
		if bucket, ok := c.Limit.(*algorithm.TokenBucket); !ok || !bucket.IsPlain() {
			return false
		}
		sameKey := func(other *request.Charge) bool { return other.Key == c.Key }
		if at := slices.IndexFunc(charges, sameKey); at < i && charges[i-1].Key != c.Key {
			return false
		}
	}
	return true
}

// bucketArguments writes KEYS and ARGV of lua/decide/buckets.lua. Number is the word of the number of
// KEYS.
func (b *batch) bucketArguments(number int) {
	b.bundleKeys()
	b.keyNames(number)
	if len(b.entries) > 1 && b.repeats() {
		b.int(0)
	}
	b.runs(b.bucketRun)
}

// bundleKeys lists the bundles of each entry in KEYS, and gives each charge the place of its bundle
// among those of its entry.
func (b *batch) bundleKeys() {
	b.keys = b.keys[:0]
	b.keyOf = b.keyOf[:0]
	for i := range b.entries {
		own := len(b.keys)
		for _, c := range b.entries[i].request.Charges {
			if len(b.keys) == own || b.keys[len(b.keys)-1].Key != c.Key {
				b.keys = append(b.keys, c)
			}
			b.keyOf = append(b.keyOf, len(b.keys)-own)
		}
		b.entries[i].bundles = len(b.keys) - own
	}
}

// repeats reports whether a bundle may stand twice in KEYS.
func (b *batch) repeats() bool {
	if b.places == nil {
		b.places = make(map[uint64]int)
	}
	clear(b.places)
	for _, c := range b.keys {
		b.places[c.KeyHash] = 0
	}
	return len(b.places) < len(b.keys)
}

// bucketRun writes a run of n as lua/decide/buckets.lua reads it.
func (b *batch) bucketRun(first, n int) {
	e := &b.entries[first]
	b.text = b.text[:0]
	b.packed(2, int64(n))
	b.packed(2, int64(e.callers))
	for i, c := range e.request.Charges {
		reach, capacity := c.Limit.(*algorithm.TokenBucket).Plain()
		mark := byte(reach - 10)
		if i > 0 && e.request.Charges[i-1].Key != c.Key {
			mark += 64
		}
		b.text = append(append(b.text, c.Label...), mark)
		b.packed(7, capacity)
		b.packed(7, c.Cost.Whole)
	}
	b.name(string(b.text))
}

// packed writes the lowest bytes of a number to the text of a run.
func (b *batch) packed(bytes int, n int64) {
	for range bytes {
		b.text = append(b.text, byte(n))
		n >>= 8
	}
}

// form says which script decides a call, and how it is asked. Calls share a script with those of the
// same form.
type form struct {
	buckets     bool          // lua/decide/buckets.lua
	straight    *trips.Script // lua/decide/straight.lua for one algorithm; nil without
	from, until int64         // the period of a calendar's limit
}

func (s *schema) formOf(d *Decision) (f form) {
	r := &d.requests[0]
	if f.buckets = d.merges && !d.alone && plainBuckets(r.Charges); f.buckets {
		return f
	}
	if len(d.requests) > 1 || len(r.Charges) > 1 || r.Op > algorithm.Peek || d.alone {
		return f
	}
	switch l := r.Charges[0].Limit.(type) {
	case *algorithm.FixedWindow:
		f.straight = s.window
	case *algorithm.Period:
		f.straight = s.window
		f.from, f.until = l.Period()
	case *algorithm.SlidingWindow:
		f.straight = s.slidingWindow
	case *algorithm.SlidingLog:
		f.straight = s.slidingLog
	}
	return f
}

// straight returns the script of one algorithm that decides the batch, or nil. In it no key may stand
// twice.
func (b *batch) straight() *trips.Script {
	if b.mixed || len(b.keys) < len(b.entries) {
		return nil
	}
	return b.calls[0].form.straight
}

// straightRun writes a run of n as lua/decide/straight.lua reads it.
func (b *batch) straightRun(first, n int) {
	e := &b.entries[first]
	c := e.request.Charges[0]
	op, times := e.asks()
	switch op {
	case algorithm.Decide:
		times = 1
	case algorithm.Peek:
		times = 0
	}
	if times == 1 && c.Cost.Whole == 1 {
		b.int(int64(n))
	} else {
		b.int(-int64(n))
		b.int(c.Cost.Whole)
		b.int(times)
	}
	b.numbers = c.Limit.Parameters(b.numbers[:0])
	for _, p := range b.numbers[1:] {
		b.int(p)
	}
}
