package redisstore

import (
	"slices"
	"sync"

	"github.com/headgate/headgate/internal/redisstore/trips"
)

// filterBatch is questions to one filter in one script.
type filterBatch struct {
	store  *Store
	calls  []*question
	parts  []int64 // that they ask for, in order
	places []byte  // of the items' bits
	arguments
}

var filterBatches = sync.Pool{New: func() any { return new(filterBatch) }}

// Batch implements trips.Parcel.
func (k *question) Batch() trips.Batch {
	b := filterBatches.Get().(*filterBatch)
	b.store = k.store
	b.begin(k.store.filter)
	return b
}

// Add implements trips.Batch. An item has at most five KEYS and ARGV, so the weights of the calls
// bound these to 3,200, and a filter's parts those of a call alone to 3,600.
func (b *filterBatch) Add(p trips.Parcel) { b.calls = append(b.calls, p.(*question)) }

// Command implements trips.Batch.
func (b *filterBatch) Command() trips.Command {
	shape := b.calls[0].shape
	for _, k := range b.calls {
		for _, it := range k.items {
			b.parts = append(b.parts, it.Part)
		}
	}
	slices.Sort(b.parts)
	b.parts = slices.Compact(b.parts)
	b.filterHead(b.store.Prefix, b.calls[0].filter, "ask", shape, b.parts)
	for _, k := range b.calls {
		for _, it := range k.items {
			part, _ := slices.BinarySearch(b.parts, it.Part)
			b.places = shape.AppendPlaces(b.places, part+1, it)
		}
	}
	b.words = append(b.words, b.places)
	size := shape.Bits / 8
	for _, k := range b.calls {
		for _, it := range k.items {
			b.int(it.Block * size)
			b.int(it.Block*size + size - 1)
		}
	}
	return b.command(b.store)
}

// Deliver implements trips.Batch.
func (b *filterBatch) Deliver(r trips.Reply) error {
	reply := r.Numbers
	if _, err := checkFilterReply(reply, len(reply)); err != nil {
		for _, k := range b.calls {
			k.reply = reply
		}
		return nil
	}
	for _, k := range b.calls {
		n := len(k.items)
		if n > len(reply) {
			return trips.ErrReply
		}
		k.reply, reply = reply[:n:n], reply[n:]
	}
	if len(reply) > 0 {
		return trips.ErrReply
	}
	return nil
}

// Release implements trips.Batch.
func (b *filterBatch) Release() {
	clear(b.calls)
	b.calls, b.parts, b.places = b.calls[:0], b.parts[:0], b.places[:0]
	b.clear()
	filterBatches.Put(b)
}
