package redisstore

import (
	"slices"
	"sync"

	"github.com/headgate/headgate/internal/request"
)

// batch is the calls that share a script, and the arguments of that. A call that takes a slot is
// alone in its batch. A batch keeps what it needs once it is encoded: a caller may leave, and use
// its requests for something else.
type batch struct {
	calls   []*call
	entries []entry
	entryOf []int // of each call: its first entry

	keys    []*request.Charge // the first charge of each of KEYS; until the batch is encoded
	places  map[uint64]int    // of keys, by hash, if there are many
	firstOf []int             // of each key: 1 + the last entry whose first charge is on it
	limits  []*request.Charge // one charge of each distinct limit
	limitAt []int64           // of each limit: its place in ARGV
	keyOf   []int             // of each charge of the entries
	limitOf []int

	script *script
	arguments
}

// entry is one request in the script. Identical requests from several callers share an entry.
type entry struct {
	request *request.Request // until the batch is encoded
	merges  bool
	brief   int // the number of words of a brief reply, or 0 if it may have none
	words   int // of its reply
	bundles int // in the short form: how many bundles its charges have

	callers int
	told    int     // callers that have their reply
	replies []int64 // of the others
	merged  merged
	at      int // of its reply in the reply of the script
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// maxListed is the number of keys up to which a batch searches them one by one.
const maxListed = 8

// collect finds the distinct requests, keys and limits.
func (b *batch) collect() {
	b.entries, b.entryOf, b.firstOf = b.entries[:0], b.entryOf[:0], b.firstOf[:0]
	b.keys, b.limits, b.keyOf, b.limitOf = b.keys[:0], b.limits[:0], b.keyOf[:0], b.limitOf[:0]
	clear(b.places)
	for _, k := range b.calls {
		if len(b.calls) > 1 && k.merges {
			if i := b.equal(&k.requests[0]); i >= 0 {
				b.entries[i].callers++
				b.entries[i].brief = 0
				b.entryOf = append(b.entryOf, i)
				continue
			}
		}
		b.entryOf = append(b.entryOf, len(b.entries))
		for i := range k.requests {
			r := &k.requests[i]
			for j, c := range r.Charges {
				at := b.keyIndex(c)
				if j == 0 {
					b.firstOf[at] = len(b.entries) + 1
				}
				b.keyOf = append(b.keyOf, at)
				b.limitOf = append(b.limitOf, b.limitIndex(c))
			}
			b.entries = append(
				b.entries,
				entry{request: r, merges: k.merges, brief: k.brief(), words: r.Words(), callers: 1},
			)
		}
	}
	for i := range b.entries {
		if e := &b.entries[i]; e.callers > 1 {
			e.merged = merge(e.request)
		}
	}
}

// equal returns the entry of an equal request, or -1.
func (b *batch) equal(r *request.Request) int {
	at := b.find(r.Charges[0])
	if at < 0 {
		return -1
	}
	if i := b.firstOf[at] - 1; i >= 0 && b.entries[i].merges && equal(b.entries[i].request, r) {
		return i
	}
	return -1
}

// find returns the index of a charge's key in the batch, or -1.
func (b *batch) find(c *request.Charge) int {
	if len(b.keys) > maxListed {
		switch i, ok := b.places[c.Hash]; {
		case !ok:
			return -1
		case b.keys[i].SameState(c):
			return i
		}
	}
	return slices.IndexFunc(b.keys, c.SameState)
}

// keyIndex returns the index of a charge's key, and adds the key if need be.
func (b *batch) keyIndex(c *request.Charge) int {
	if i := b.find(c); i >= 0 {
		return i
	}
	b.keys, b.firstOf = append(b.keys, c), append(b.firstOf, 0)
	switch n := len(b.keys); {
	case n == maxListed+1:
		if b.places == nil {
			b.places = make(map[uint64]int)
		}
		for i, k := range b.keys {
			b.places[k.Hash] = i
		}
	case n > maxListed:
		b.places[c.Hash] = n - 1
	}
	return len(b.keys) - 1
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

func (b *batch) members() []*call { return b.calls }

// release forgets the calls and lets the batch be used again.
func (b *batch) release() {
	b.calls = nil
	clear(b.entries)
	clear(b.limits)
	b.clear(0)
	batches.Put(b)
}

// periodPassed reports whether nothing ran because the limits of a batch do not hold at the
// server's time, which it returns.
func periodPassed(reply []int64) (now int64, passed bool) {
	if len(reply) == 2 && reply[0] == -1 {
		return reply[1], true
	}
	return 0, false
}

// A brief reply has one number for each charge: -2 - 2 * the level that was found if the charge fits,
// otherwise -3 - 2 * the level. No verdict is as low, nor is the -1 of a period that has passed.
func isBrief(reply []int64) bool {
	return !slices.ContainsFunc(reply, func(n int64) bool { return n >= -1 })
}

// unfold appends the reply that a brief one stands for.
func unfold(reply, brief []int64) []int64 {
	verdict := int64(0)
	for i, n := range brief {
		if n%2 != 0 {
			verdict |= 1 << i
		}
	}
	reply = append(reply, verdict)
	for _, n := range brief {
		receipt := int64(0)
		if verdict == 0 {
			receipt = 1
		}
		reply = append(reply, (-2-n)/2, 0, receipt)
	}
	return reply
}

// distribute gives each call its part of the script's reply, or all of it if nothing ran or if it has
// the script for itself and may have taken a slot too.
func (b *batch) distribute(reply []int64) error {
	if _, passed := periodPassed(reply); passed || b.calls[0].alone {
		for _, k := range b.calls {
			k.reply = reply
		}
		return nil
	}
	n := 0
	for i := range b.entries {
		e := &b.entries[i]
		if e.at = n; e.brief > 0 && n+e.brief <= len(reply) && isBrief(reply[n:n+e.brief]) {
			e.words = e.brief
		}
		n += e.words
	}
	if n != len(reply) {
		return ErrReply
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

// decode hands a reply to the call's requests.
func (k *call) decode(reply []int64) error {
	if len(reply) > 0 && len(reply) == k.brief() && isBrief(reply) {
		r := &k.requests[0]
		r.Buffer = unfold(r.Buffer[:0], reply)
		reply = r.Buffer
	}
	for i := range k.requests {
		r := &k.requests[i]
		n := r.Words()
		if r.IsUnseeded(reply) {
			n = 1
		}
		if len(reply) < n {
			return ErrReply
		}
		r.Settle(reply[:n:n])
		reply = reply[n:]
	}
	if s := k.requests[0].Slot; s != nil && len(reply) > 0 {
		return decodeSlot(s, reply)
	}
	if len(reply) > 0 {
		return ErrReply
	}
	return nil
}
