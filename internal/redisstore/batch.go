package redisstore

import (
	"slices"
	"sync"

	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

// batch is the decisions that share a script, and the arguments of that. A batch keeps what it
// needs once it is encoded: a caller may leave, and use its requests for something else.
type batch struct {
	store   *Store
	calls   []*Decision
	entries []entry
	entryOf []int // of each call: its first entry

	keys    []*request.Charge // the first charge of each of KEYS; until the batch is encoded
	places  map[uint64]int    // of keys, by hash
	firstOf []int             // of each key: 1 + the last entry whose first charge is on it
	mixed   bool              // a key is charged under several limits
	limits  []*request.Charge // one charge of each distinct limit
	limitAt []int64           // of each limit: its place in ARGV
	keyOf   []int             // of each charge of the entries
	limitOf []int
	numbers []int64 // the parameters of one limit
	text    []byte  // of the charges of a run

	arguments
}

// entry is one request in the script. Identical requests from several callers share an entry.
type entry struct {
	request *request.Request // until the batch is encoded
	first   int              // its first charge, in keyOf and limitOf
	merges  bool
	brief   int // the number of words of a brief reply, or 0 if it may have none
	words   int // of its reply

	callers int
	told    int     // callers that have their reply
	replies []int64 // of the others
	merged  merged
	at      int // of its reply in the reply of the script
}

var batches = sync.Pool{New: func() any { return &batch{places: make(map[uint64]int)} }}

// Batch implements trips.Parcel.
func (d *Decision) Batch() trips.Batch {
	b := batches.Get().(*batch)
	b.store = d.store
	return b
}

// Add implements trips.Batch. The weights of the calls bound KEYS and ARGV to 3,730. Refunds to sliding
// logs of eight windows have the most for their weight: 5 a request, and 29 a charge.
func (b *batch) Add(p trips.Parcel) { b.calls = append(b.calls, p.(*Decision)) }

// collect finds the requests, the keys and the limits of the calls. Equal requests are one entry.
func (b *batch) collect() {
	clear(b.places)
	for _, k := range b.calls {
		if k.merges && len(b.entries) > 0 {
			if i := b.equal(&k.requests[0]); i >= 0 {
				b.entries[i].join()
				b.entryOf = append(b.entryOf, i)
				continue
			}
		}
		b.entryOf = append(b.entryOf, len(b.entries))
		for i := range k.requests {
			b.collectRequest(k, &k.requests[i])
		}
	}
}

func (b *batch) collectRequest(k *Decision, r *request.Request) {
	first := len(b.keyOf)
	for j, c := range r.Sent() {
		at := b.keyIndex(c)
		if j == 0 {
			b.firstOf[at] = len(b.entries) + 1
		}
		b.mixed = b.mixed || b.keys[at].Limit != c.Limit
		b.keyOf = append(b.keyOf, at)
		b.limitOf = append(b.limitOf, b.limitIndex(c))
	}
	b.entries = append(b.entries, entry{
		request: r, first: first, merges: k.merges, brief: k.brief, words: r.Words(), callers: 1,
	})
}

// join adds the caller of an equal request. It says which charges fit by an algorithm's reply, so it
// needs one that is not brief.
func (e *entry) join() {
	if e.callers++; e.callers == 2 {
		e.merged = merge(e.request)
		e.brief = 0
	}
}

// equal returns the entry of an equal request, or -1.
func (b *batch) equal(r *request.Request) int {
	at := b.find(r.Charges[0])
	if at < 0 {
		return -1
	}
	if i := b.firstOf[at] - 1; i >= 0 && b.entries[i].merges && b.entries[i].request.Equal(r) {
		return i
	}
	return -1
}

// find returns the index of a charge's key in the batch, or -1.
func (b *batch) find(c *request.Charge) int {
	switch i, ok := b.places[c.StateHash()]; {
	case !ok:
		return -1
	case b.keys[i].SameState(c):
		return i
	}
	return slices.IndexFunc(b.keys, c.SameState) // another state has its hash
}

// keyIndex returns the index of a charge's key, and adds the key if need be.
func (b *batch) keyIndex(c *request.Charge) int {
	i := b.find(c)
	if i < 0 {
		i = len(b.keys)
		b.keys, b.firstOf = append(b.keys, c), append(b.firstOf, 0)
		b.places[c.StateHash()] = i
	}
	return i
}

// limitIndex returns the index of a charge's limit, and adds the limit if need be. One that may be
// raised for a key is listed for each key.
func (b *batch) limitIndex(c *request.Charge) int {
	for i, l := range b.limits {
		if l.Limit == c.Limit && l.Shadow == c.Shadow && l.Label == c.Label && !c.Adjusts && !l.Adjusts {
			return i
		}
	}
	b.limits = append(b.limits, c)
	return len(b.limits) - 1
}

// Release implements trips.Batch.
func (b *batch) Release() {
	clear(b.calls)
	clear(b.entries)
	clear(b.keys)
	clear(b.limits)
	b.clear()
	*b = batch{ // keeps its memory
		calls: b.calls[:0], entries: b.entries[:0], entryOf: b.entryOf[:0],
		keys: b.keys[:0], places: b.places, firstOf: b.firstOf[:0],
		limits: b.limits[:0], limitAt: b.limitAt[:0], keyOf: b.keyOf[:0], limitOf: b.limitOf[:0],
		numbers: b.numbers, text: b.text, arguments: b.arguments,
	}
	batches.Put(b)
}

// Deliver implements trips.Batch. A call gets the whole reply if nothing ran or if no other call has a
// part of it.
func (b *batch) Deliver(r trips.Reply) error {
	reply, first := r.Numbers, b.calls[0]
	if len(b.calls) == 1 && first.isReply(reply) {
		first.reply = reply
		return nil
	}
	switch _, passed := periodPassed(reply); {
	case passed, first.isDeclined(reply):
		for _, k := range b.calls {
			k.reply = reply
		}
		return nil
	case len(b.calls) == 1:
		return trips.ErrReply
	}
	return b.share(reply)
}

// share gives each call its part of the reply.
func (b *batch) share(reply []int64) error {
	n := 0
	for i := range b.entries {
		e := &b.entries[i]
		if e.at = n; e.brief > 0 && n+e.brief <= len(reply) && isBrief(reply[n:n+e.brief]) {
			e.words = e.brief
		}
		n += e.words
	}
	if n != len(reply) {
		return trips.ErrReply
	}
	for i, k := range b.calls {
		e := &b.entries[b.entryOf[i]]
		if e.callers > 1 {
			if e.replies == nil {
				e.replies = make([]int64, e.callers*e.words)
			}
			k.reply, e.replies = e.replies[:e.words:e.words], e.replies[e.words:]
			e.merged.reply(k.reply, reply[e.at:e.at+e.words], int64(e.told))
			e.told++
			continue
		}
		words := k.words
		if e.brief > 0 {
			words = e.words
		}
		k.reply = reply[e.at : e.at+words : e.at+words]
	}
	return nil
}
