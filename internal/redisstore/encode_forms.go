package redisstore

import (
	"slices"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

// plainBuckets reports whether the short form of lua/decide/decide.lua can ask for these charges.
func plainBuckets(charges []*request.Charge) bool {
	for _, c := range charges {
		if bucket, ok := c.Limit.(*algorithm.TokenBucket); !ok || !bucket.IsPlain() {
			return false
		}
	}
	return true
}

// short writes the short form of lua/decide/decide.lua. Number is the word of the number of KEYS.
func (b *batch) short(number int) {
	b.bundleKeys()
	b.keyNames(number)
	if len(b.entries) > 1 && b.repeats() {
		b.int(0)
	}
	b.runs(b.shortRun)
}

// bundleKeys lists the bundles of each entry in KEYS, and gives each charge the place of its bundle
// among those of its entry.
func (b *batch) bundleKeys() {
	b.keys = b.keys[:0]
	b.keyOf = b.keyOf[:0]
	for i := range b.entries {
		own := len(b.keys)
		for _, c := range b.entries[i].request.Charges {
			at := slices.IndexFunc(b.keys[own:], func(k *request.Charge) bool { return k.Key == c.Key })
			if at < 0 {
				at = len(b.keys) - own
				b.keys = append(b.keys, c)
			}
			b.keyOf = append(b.keyOf, at)
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

// form says which script decides a call, and how it is asked. Calls share a script with those of the
// same form.
type form struct {
	short       bool          // the short form of the script of all algorithms
	straight    *trips.Script // that of one algorithm; nil for the one of all
	from, until int64         // the period of a calendar's limit
}

func (s *schema) formOf(d *Decision) (f form) {
	r := &d.requests[0]
	if f.short = d.merges && !d.alone && plainBuckets(r.Charges); f.short {
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
