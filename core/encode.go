package core

import (
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/algorithm"
)

// encode writes the arguments of EVALSHA or EVAL as lua/decide.lua reads them. What is not constant goes by pointers
// into ints and names, because a pointer in an interface costs no allocation; so these must not grow after the
// first. Keys go by themselves: go-redis reads the first to find its slot, and hooks of the client show all.
func (b *batch) encode(calls []*call, script *script, prefix string) {
	b.calls = calls
	b.collect()
	room := 6 + 24*len(b.limits)
	for i := range b.entries {
		room += 5 + 5*len(b.entries[i].request.charges)
	}
	slot := calls[0].requests[0].slot
	if slot != nil {
		room++
	}
	b.ints = slices.Grow(b.ints[:0], room)
	b.limitAt = slices.Grow(b.limitAt[:0], len(b.limits))[:len(b.limits)]
	b.names = slices.Grow(b.names[:0], len(b.limits)+len(b.entries))

	b.args = append(b.args[:0], "evalsha", &script.sha)
	keys := b.next()
	b.encodeKeys(prefix)
	if slot != nil {
		b.args = appendLeaseKeys(b.args, slot.scope)
	}
	*keys = int64(len(b.args) - 3)
	if reach, capacity, ok := b.plain(); ok {
		b.encodePlain(reach, capacity)
	} else {
		b.encodeLimits()
		b.encodeRuns()
	}
	for i := range b.entries {
		b.entries[i].request = nil
	}
	clear(b.keys)
	if slot != nil {
		from := len(b.args)
		b.args = appendAcquire(append(b.args, "acquire"), slot.ask)
		b.int(int64(len(b.args) - from))
	}
}

// encodeKeys writes the names of all keys, as parts of one string.
func (b *batch) encodeKeys(prefix string) {
	size := 0
	for _, c := range b.keys {
		size += len(prefix) + len(c.key.path) + len(c.from.suffix)
	}
	var all strings.Builder
	all.Grow(size)
	for _, c := range b.keys {
		from := all.Len()
		all.WriteString(prefix)
		all.WriteString(c.key.path)
		all.WriteString(c.from.suffix)
		b.args = append(b.args, all.String()[from:])
	}
}

// plain says whether the script can be asked in short, and the reach and the capacity of the bucket then.
func (b *batch) plain() (reach, capacity int64, ok bool) {
	bucket, ok := b.limits[0].limit.(*algorithm.TokenBucket)
	if !ok || len(b.limits) > 1 || len(b.keys) < len(b.entries) {
		return 0, 0, false
	}
	for i := range b.entries {
		if r := b.entries[i].request; !r.brief() || r.charges[0].cost != b.limits[0].cost {
			return 0, 0, false
		}
	}
	return bucket.Plain()
}

func (b *batch) encodePlain(reach, capacity int64) {
	b.int(-reach)
	b.int(capacity)
	b.int(b.limits[0].cost.Whole)
	if len(b.entries) < len(b.calls) { // some stand for several
		for i := range b.entries {
			b.int(int64(b.entries[i].many))
		}
	}
}

func (b *batch) encodeLimits() {
	argv := len(b.args) // ARGV[1], in args
	requestsAt := b.next()
	from, until, short := int64(0), int64(0), int64(0)
	if len(b.keys) > 1 {
		short = 1
	}
	for _, c := range b.limits {
		if p, ok := c.limit.(algorithm.Periodic); ok {
			f, u := p.Period()
			if from = max(from, f); until == 0 || u < until {
				until = u
			}
		}
		if _, ok := c.limit.(*algorithm.SlidingLog); ok {
			short = 0
		}
	}
	b.int(from)
	b.int(until)
	b.int(short)
	for i, c := range b.limits {
		b.limitAt[i] = int64(len(b.args) - argv + 1)
		b.name(c.limit.Script())
		b.flag(c.policy.shadow)
		from := len(b.ints)
		b.ints = c.limit.Parameters(b.ints)
		for i := range b.ints[from:] {
			b.args = append(b.args, &b.ints[from+i])
		}
	}
	*requestsAt = int64(len(b.args) - argv + 1)
}

// encodeRuns writes the entries, as runs of those that differ in their keys alone.
func (b *batch) encodeRuns() {
	var first, times, n = 0, (*int64)(nil), 0
	for i := range b.entries {
		count := len(b.entries[i].request.charges)
		if i > 0 && b.continues(first, i, n) {
			*times++
		} else {
			first, times = i, b.encodeEntry(&b.entries[i], n)
		}
		n += count
	}
}

// continues says whether entry i, whose first charge is the n-th, asks of the keys that follow what entry first asks of its own,
// as all between them do.
func (b *batch) continues(first, i, n int) bool {
	e, f := &b.entries[i], &b.entries[first]
	op, bound := e.asks()
	to, most := f.asks()
	count := len(e.request.charges)
	if op != to || bound != most || op == algorithmGive || count != len(f.request.charges) || e.request.receipts != f.request.receipts {
		return false
	}
	for j := range count {
		if b.keyOf[n+j] != b.keyOf[n+j-count]+count || b.limitOf[n+j] != b.limitOf[n+j-count] ||
			e.request.charges[j].cost != f.request.charges[j].cost {
			return false
		}
	}
	return true
}

// asks is the entry's operation and its bound.
func (e *entry) asks() (algorithm.Operation, int64) {
	switch {
	case e.request.slot != nil:
		return algorithmPeek, 0 // the script decides then
	case e.many > 1:
		return algorithmAtMost, int64(e.many)
	}
	return e.request.op, e.request.bound
}

// encodeEntry writes a request whose first charge is the n-th, and returns how many there are of it.
func (b *batch) encodeEntry(e *entry, n int) (times *int64) {
	r := e.request
	op, bound := e.asks()
	b.name(string(op))
	times = b.next()
	*times = 1
	b.int(int64(len(r.charges)))
	b.flag(r.receipts)
	if op == algorithmAtMost || op == algorithmReserve {
		b.int(bound)
	}
	for i := range r.charges {
		c := &r.charges[i]
		b.int(int64(b.keyOf[n+i]) + 1)
		b.int(b.limitAt[b.limitOf[n+i]])
		b.int(c.cost.Whole)
		b.int(c.cost.Fraction)
		if op == algorithmGive {
			b.int(c.receipt())
		}
	}
	return times
}

// next appends an integer to be set later.
func (b *batch) next() *int64 {
	b.ints = append(b.ints, 0)
	p := &b.ints[len(b.ints)-1]
	b.args = append(b.args, p)
	return p
}

func (b *batch) int(n int64) { *b.next() = n }

func (b *batch) flag(set bool) {
	n := int64(0)
	if set {
		n = 1
	}
	b.int(n)
}

func (b *batch) name(s string) {
	b.names = append(b.names, s)
	b.args = append(b.args, &b.names[len(b.names)-1])
}
