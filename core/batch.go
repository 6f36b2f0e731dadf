package core

import (
	"errors"
	"slices"
	"sync"

	"github.com/headgate/headgate/internal/algorithm"
)

// errReply is a reply that is not what the script's contract says.
var errReply = errors.New("core: the script's reply has a wrong shape")

// errPeriod is a clock that went from one period of a calendar to another whenever it was asked.
var errPeriod = errors.New("core: redis's clock leaps from period to period")

// batch is the calls that share one script call, as its arguments. A call that also takes a slot is alone. What it needs
// once it is encoded, it keeps itself: a caller may leave, and use his requests otherwise.
type batch struct {
	calls   []*call
	entries []entry
	entryOf []int // of each call, the first

	keys    []string
	places  map[string]int // of keys, if there are many
	firstOf []int          // of each key, the last entry whose first key it is, from 1
	limits  []*charge      // one charge of each distinct limit
	limitAt []int64        // where it stands in ARGV
	keyOf   []int          // of each entry's charge
	limitOf []int
	ints    []int64
	names   []string
	args    []any
}

// entry is one request in the script, of one caller, or of several who want the very same.
type entry struct {
	request *request // until it is encoded
	merged  merged
	many    int // callers
	given   int // callers that have their part of the reply
	words   int
	at      int // in the reply
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// few is how many keys are searched one by one.
const few = 8

// encode writes the arguments of EVALSHA or EVAL as lua/decide.lua reads them. What is not constant goes by pointers
// into ints and names, because a pointer in an interface costs no allocation; so these must not grow after the
// first. A key goes by itself: go-redis reads the first one to find its slot.
func (b *batch) encode(calls []*call, script *script) {
	b.calls = calls
	b.collect()
	room := 5 + 24*len(b.limits)
	for i := range b.entries {
		room += 4 + 5*len(b.entries[i].request.charges)
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
	for _, k := range b.keys {
		b.args = append(b.args, k)
	}
	if slot != nil {
		b.args = appendLeaseKeys(b.args, slot.scope)
	}
	*keys = int64(len(b.args) - 3)
	b.encodeLimits()
	b.encodeRuns()
	if slot != nil {
		from := len(b.args)
		b.args = appendAcquire(append(b.args, "acquire"), slot.ask)
		b.int(int64(len(b.args) - from))
	}
}

// collect finds the distinct requests, keys and limits.
func (b *batch) collect() {
	b.entries, b.entryOf, b.firstOf = b.entries[:0], b.entryOf[:0], b.firstOf[:0]
	b.keys, b.limits, b.keyOf, b.limitOf = b.keys[:0], b.limits[:0], b.keyOf[:0], b.limitOf[:0]
	clear(b.places)
	for _, k := range b.calls {
		if len(b.calls) > 1 && k.requests[0].merges {
			if i := b.same(&k.requests[0]); i >= 0 {
				b.entries[i].many++
				b.entryOf = append(b.entryOf, i)
				continue
			}
		}
		b.entryOf = append(b.entryOf, len(b.entries))
		for i := range k.requests {
			for j := range k.requests[i].charges {
				c := &k.requests[i].charges[j]
				at := b.keyIndex(c.name)
				if j == 0 {
					b.firstOf[at] = len(b.entries) + 1
				}
				b.keyOf = append(b.keyOf, at)
				b.limitOf = append(b.limitOf, b.limitIndex(c))
			}
			b.entries = append(b.entries, entry{request: &k.requests[i], many: 1, words: words(k.requests[i : i+1])})
		}
	}
	for i := range b.entries {
		if e := &b.entries[i]; e.many > 1 {
			e.merged = merge(e.request)
		}
	}
}

// same is the entry of an equal request, or -1.
func (b *batch) same(r *request) int {
	at := b.find(r.charges[0].name)
	if at < 0 {
		return -1
	}
	i := b.firstOf[at] - 1
	if i >= 0 && b.entries[i].request.merges && b.entries[i].request.equal(r) {
		return i
	}
	return -1
}

func (b *batch) encodeLimits() {
	argv := len(b.args) // ARGV[1], in args
	requestsAt := b.next()
	from, until := int64(0), int64(algorithm.MaxUnits)
	for _, c := range b.limits {
		if p, ok := c.limit.(algorithm.Periodic); ok {
			f, u := p.Period()
			from, until = max(from, f), min(until, u)
		}
	}
	b.int(from)
	b.int(until)
	for i, c := range b.limits {
		b.limitAt[i] = int64(len(b.args) - argv + 1)
		b.name(c.limit.Script())
		shadow := int64(0)
		if c.policy.shadow {
			shadow = 1
		}
		b.int(shadow)
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
	for i := range b.entries {
		b.entries[i].request = nil
	}
}

// continues says whether entry i, whose first charge is the n-th, asks of the keys that follow what entry first asks of its own,
// as all between them do.
func (b *batch) continues(first, i, n int) bool {
	e, f := &b.entries[i], &b.entries[first]
	op, bound := e.asks()
	to, most := f.asks()
	count := len(e.request.charges)
	if op != to || bound != most || op == algorithmGive || count != len(f.request.charges) {
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
	if op == algorithmAtMost || op == algorithmReserve || op == algorithmGive {
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

func (b *batch) name(s string) {
	b.names = append(b.names, s)
	b.args = append(b.args, &b.names[len(b.names)-1])
}

// find is the index of a key in the batch, or -1.
func (b *batch) find(name string) int {
	if len(b.keys) <= few {
		return slices.Index(b.keys, name)
	}
	if i, ok := b.places[name]; ok {
		return i
	}
	return -1
}

// keyIndex is the index of a key in the batch, which has it then.
func (b *batch) keyIndex(name string) int {
	if i := b.find(name); i >= 0 {
		return i
	}
	b.keys, b.firstOf = append(b.keys, name), append(b.firstOf, 0)
	switch n := len(b.keys); {
	case n == few+1:
		if b.places == nil {
			b.places = make(map[string]int)
		}
		for i, k := range b.keys {
			b.places[k] = i
		}
	case n > few:
		b.places[name] = n - 1
	}
	return len(b.keys) - 1
}

// limitIndex is the index of the charge's limit among the batch's limits.
func (b *batch) limitIndex(c *charge) int {
	for i, l := range b.limits {
		if l.limit == c.limit && l.policy.shadow == c.policy.shadow {
			return i
		}
	}
	b.limits = append(b.limits, c)
	return len(b.limits) - 1
}

// distribute gives each call its part of the reply. Where nothing ran that is all of it: -1 and the time.
func (b *batch) distribute(reply []int64) error {
	if otherPeriod(reply) || b.calls[0].words < 0 {
		for _, k := range b.calls {
			k.reply = reply
		}
		return nil
	}
	n := 0
	for i := range b.entries {
		b.entries[i].at = n
		n += b.entries[i].words
	}
	if n != len(reply) {
		return errReply
	}
	for i, k := range b.calls {
		e := &b.entries[b.entryOf[i]]
		if e.many > 1 {
			k.reply = e.merged.reply(reply[e.at:e.at+e.words], int64(e.given))
			e.given++
		} else {
			k.reply = reply[e.at : e.at+k.words : e.at+k.words]
		}
	}
	return nil
}

// free forgets the calls and makes the batch fit for another use.
func (b *batch) free() {
	b.calls = nil
	clear(b.entries)
	clear(b.keys)
	clear(b.limits)
	clear(b.args)
	batches.Put(b)
}
