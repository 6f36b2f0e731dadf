package core

import (
	"errors"
	"slices"
	"sync"
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

	keys    []*charge      // the first on each; until they are encoded
	places  map[uint64]int // of keys, by their numbers, if there are many
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
	many    int     // callers
	given   int     // callers that have their part of the reply
	replies []int64 // of those who have none yet
	brief   bool    // may be answered in one number
	words   int
	at      int // in the reply
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// few is how many keys are searched one by one.
const few = 8

// collect finds the distinct requests, keys and limits.
func (b *batch) collect() {
	b.entries, b.entryOf, b.firstOf = b.entries[:0], b.entryOf[:0], b.firstOf[:0]
	b.keys, b.limits, b.keyOf, b.limitOf = b.keys[:0], b.limits[:0], b.keyOf[:0], b.limitOf[:0]
	clear(b.places)
	for _, k := range b.calls {
		if len(b.calls) > 1 && k.requests[0].merges {
			if i := b.same(&k.requests[0]); i >= 0 {
				b.entries[i].many++
				b.entries[i].brief = false
				b.entryOf = append(b.entryOf, i)
				continue
			}
		}
		b.entryOf = append(b.entryOf, len(b.entries))
		for i := range k.requests {
			for j := range k.requests[i].charges {
				c := &k.requests[i].charges[j]
				at := b.keyIndex(c)
				if j == 0 {
					b.firstOf[at] = len(b.entries) + 1
				}
				b.keyOf = append(b.keyOf, at)
				b.limitOf = append(b.limitOf, b.limitIndex(c))
			}
			r := &k.requests[i]
			b.entries = append(b.entries, entry{request: r, many: 1, brief: r.brief(), words: words(k.requests[i : i+1])})
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
	at := b.find(&r.charges[0])
	if at < 0 {
		return -1
	}
	i := b.firstOf[at] - 1
	if i >= 0 && b.entries[i].request.merges && b.entries[i].request.equal(r) {
		return i
	}
	return -1
}

// find is the index of a charge's key in the batch, or -1.
func (b *batch) find(c *charge) int {
	if len(b.keys) > few {
		switch i, ok := b.places[c.number]; {
		case !ok:
			return -1
		case b.keys[i].same(c):
			return i
		}
	}
	return slices.IndexFunc(b.keys, c.same)
}

// keyIndex is the index of a charge's key in the batch, which has it then.
func (b *batch) keyIndex(c *charge) int {
	if i := b.find(c); i >= 0 {
		return i
	}
	b.keys, b.firstOf = append(b.keys, c), append(b.firstOf, 0)
	switch n := len(b.keys); {
	case n == few+1:
		if b.places == nil {
			b.places = make(map[uint64]int)
		}
		for i, k := range b.keys {
			b.places[k.number] = i
		}
	case n > few:
		b.places[c.number] = n - 1
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
		e := &b.entries[i]
		if e.at = n; e.brief && n < len(reply) && isBrief(reply[n]) {
			e.words = 1
		}
		n += e.words
	}
	if n != len(reply) {
		return errReply
	}
	for i, k := range b.calls {
		e := &b.entries[b.entryOf[i]]
		if e.many > 1 {
			if e.replies == nil {
				e.replies = make([]int64, e.many*e.words)
			}
			k.reply, e.replies = e.replies[:e.words:e.words], e.replies[e.words:]
			e.merged.reply(k.reply, reply[e.at:e.at+e.words], int64(e.given))
			e.given++
		} else {
			words := k.words
			if e.brief {
				words = e.words
			}
			k.reply = reply[e.at : e.at+words : e.at+words]
		}
	}
	return nil
}

// free forgets the calls and makes the batch fit for another use.
func (b *batch) free() {
	b.calls = nil
	clear(b.entries)
	clear(b.limits)
	clear(b.args)
	batches.Put(b)
}
