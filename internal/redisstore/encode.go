package redisstore

import (
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

// Command implements trips.Batch. It writes the arguments of EVALSHA as lua/decide/decide.lua reads
// them. Values not constant go by pointers into ints and names, because a pointer in an interface
// costs no allocation. So these must not grow after the first. Keys go by value: go-redis reads the
// first one to find its slot, and hooks of the client may show all.
func (b *batch) Command() trips.Command {
	script, first := b.schema.decide, &b.calls[0].requests[0]
	admits, straight := first.Alone(), b.straight()
	switch {
	case admits:
		script = b.schema.admit
	case straight != nil:
		script = straight
	}
	room := 7 + (limitSize+mostParameters)*len(b.limits)
	for i := range b.entries {
		e := &b.entries[i]
		room += entrySize + chargeSize*len(e.request.Charges)
		if e.callers > 1 {
			e.merged = merge(e.request)
		}
	}
	if admits {
		room += 12 + 17*len(first.Charges)
	}
	b.ints = slices.Grow(b.ints[:0], room)
	b.limitAt = slices.Grow(b.limitAt[:0], len(b.limits))[:len(b.limits)]
	b.names = slices.Grow(b.names[:0], 2*len(b.limits)+len(b.entries)+len(b.keyOf))

	b.args = script.Begin(b.args[:0])
	keys, short, repeats := b.next(), straight == nil && b.short(), false
	if short {
		repeats = b.bundleKeys()
	}
	b.keyNames(b.schema.prefix)
	if first.Slot != nil {
		b.leaseKeys(first.Slot.Scope)
	}
	*keys = int64(len(b.args) - 3)
	switch {
	case straight != nil:
		b.straightRuns()
	case short:
		if repeats {
			b.int(0)
		}
		b.runs(b.shortEntry)
		if b.entries[len(b.entries)-1].callers == 1 { // the script knows how many keys are left
			b.args = b.args[:len(b.args)-2]
		}
	default:
		b.limitList()
		b.runs(b.entry)
	}
	if admits {
		b.admission(first)
	}
	for i := range b.entries {
		b.entries[i].request = nil
	}
	clear(b.keys)
	b.args = b.schema.clocked(b.args)
	return trips.Command{Script: script, Args: b.args}
}

// keyNames writes the names of all keys, as parts of one string.
func (b *batch) keyNames(prefix string) {
	size := 0
	for _, c := range b.keys {
		size += len(prefix) + len(c.Key) + len(c.Stored())
	}
	var all strings.Builder
	all.Grow(size)
	for _, c := range b.keys {
		from := all.Len()
		all.WriteString(prefix)
		all.WriteString(c.Key)
		all.WriteString(c.Stored())
		b.args = append(b.args, all.String()[from:])
	}
	for _, c := range b.keys {
		if c.HoldFor > 0 {
			b.args = append(b.args, prefix+c.Key+c.Suffix+request.HoldsSuffix)
		}
	}
	for _, c := range b.keys {
		if c.Adjusts {
			b.args = append(b.args, prefix+c.Key+c.Suffix+request.AdjustmentsSuffix)
		}
	}
}

func (b *batch) limitList() {
	argv := len(b.args) // ARGV[1], in args
	requestsAt := b.next()
	from, until, atOnce := int64(0), int64(0), int64(0)
	if len(b.keys) > 1 {
		atOnce = 1
	}
	for _, c := range b.limits {
		if p, ok := c.Limit.(algorithm.Periodic); ok {
			f, u := p.Period()
			if from = max(from, f); until == 0 || u < until {
				until = u
			}
		}
		if _, ok := c.Limit.(*algorithm.SlidingLog); ok {
			atOnce = 0 // its values may be long
		}
	}
	if k := b.limits[0].Adjustment; k != nil && k.Until > 0 {
		from, until = k.From, k.Until
	}
	b.int(from)
	b.int(until)
	b.int(atOnce)
	for i, c := range b.limits {
		b.limitAt[i] = int64(len(b.args) - argv + 1)
		b.name(c.Limit.Script())
		b.flag(c.Shadow)
		from := len(b.ints)
		b.ints = c.Limit.Parameters(b.ints)
		for i := range b.ints[from:] {
			b.args = append(b.args, &b.ints[from+i])
		}
		if c.Label != "" {
			b.name(c.Label)
		}
	}
	*requestsAt = int64(len(b.args) - argv + 1)
}

// runs writes the entries as runs of those that differ in their keys alone. write writes the first
// of a run, whose first charge is the n-th, and returns where the length of the run is kept.
func (b *batch) runs(write func(e *entry, n int) (times *int64)) {
	var first, n int
	var times *int64
	for i := range b.entries {
		r := b.entries[i].request
		count := len(r.Charges)
		if r.Op == algorithm.Settle || r.Op == algorithm.Renew {
			continue // alone in its batch, and no request of lua/decide/decide.lua
		}
		if i > 0 && b.continues(first, i, n) {
			*times++
		} else {
			first, times = i, write(&b.entries[i], n)
		}
		n += count
	}
}

// continues reports whether entry i, whose first charge is the n-th, continues the run that begins
// with entry first: it asks the same of the keys that follow.
func (b *batch) continues(first, i, n int) bool {
	e, f := &b.entries[i], &b.entries[first]
	op, bound := e.asks()
	firstOp, firstBound := f.asks()
	count := len(e.request.Charges)
	if op != firstOp || bound != firstBound || op == algorithm.Give ||
		count != len(f.request.Charges) ||
		e.request.Receipts != f.request.Receipts {
		return false
	}
	next := count
	if e.bundles > 0 {
		next = 0
	}
	for j := range count {
		if b.keyOf[n+j] != b.keyOf[n+j-count]+next || b.limitOf[n+j] != b.limitOf[n+j-count] ||
			e.request.Charges[j].Cost != f.request.Charges[j].Cost {
			return false
		}
	}
	return true
}

// asks returns the entry's operation and bound in the script.
func (e *entry) asks() (algorithm.Operation, int64) {
	switch {
	case e.request.Op.Adjusts():
		return algorithm.Peek, 0 // lua/admit/admit.lua adjusts
	case e.callers > 1:
		return algorithm.AtMost, int64(e.callers)
	}
	return e.request.Op, e.request.Bound
}

// entry writes the first request of a run.
func (b *batch) entry(e *entry, n int) (times *int64) {
	r := e.request
	op, bound := e.asks()
	b.name(op.String())
	times = b.next()
	*times = 1
	b.int(int64(len(r.Charges)))
	b.flag(r.Receipts)
	if op == algorithm.AtMost || op == algorithm.Reserve {
		b.int(bound)
	}
	for i, c := range r.Charges {
		b.int(int64(b.keyOf[n+i]) + 1)
		b.int(b.limitAt[b.limitOf[n+i]])
		b.int(c.Cost.Whole)
		b.int(c.Cost.Fraction)
		if op == algorithm.Give {
			b.int(c.Receipt())
		}
	}
	return times
}
