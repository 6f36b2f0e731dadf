package redisstore

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/headgate/headgate/internal/bloom"
	"github.com/headgate/headgate/internal/request"
)

// Filters is a request.FilterStore on Redis. Each method ends when its context does. It is safe for
// concurrent use.
type Filters struct{ store *Store }

var _ request.FilterStore = (*Filters)(nil)

// NewFilters returns a store of filters beside a Store.
func NewFilters(s *Store) *Filters { return &Filters{s} }

// filterCall is what a call asks of a filter.
type filterCall struct {
	name  string // without the prefix; its braces pick the hash slot
	shape bloom.Shape
	items []bloom.Item
}

// Ask implements request.FilterStore. Calls that wait for a round trip share a script.
func (f *Filters) Ask(
	ctx context.Context, filter string, s bloom.Shape, items []bloom.Item,
) ([]int64, error) {
	replies, err := f.ask(ctx, filter, s, items)
	for err == nil && slices.Contains(replies, bloom.Again) {
		var rest []bloom.Item
		for i, r := range replies {
			if r == bloom.Again {
				rest = append(rest, items[i])
			}
		}
		var later []int64
		if later, err = f.ask(ctx, filter, s, rest); err != nil {
			break
		}
		for i, r := range replies {
			if r == bloom.Again {
				replies[i], later = later[0], later[1:]
			}
		}
	}
	return replies, f.store.outcome(ctx, err)
}

func (f *Filters) ask(
	ctx context.Context, filter string, s bloom.Shape, items []bloom.Item,
) ([]int64, error) {
	k := f.store.newCall()
	defer f.store.release(k)
	k.filter = filterCall{filter, s, items}
	k.outermost = filter
	k.weight = len(items) * (1 + s.Hashes/8 + int(s.Bits/2048)) // a small block takes some 2 µs
	k.bound(ctx, f.store.Timeout)
	if err := f.store.ask(ctx, k); err != nil {
		return nil, err
	}
	return checkFilterReply(k.reply, len(items))
}

// checkFilterReply returns a reply of n integers.
func checkFilterReply(reply []int64, n int) ([]int64, error) {
	switch {
	case len(reply) == 6 && reply[0] == -1:
		return nil, request.OtherShape{Shape: bloom.Shape{
			Bits: reply[1], Blocks: reply[2], Parts: reply[3], Hashes: int(reply[4]), Window: reply[5],
		}}
	case len(reply) != n:
		return nil, ErrReply
	}
	return reply, nil
}

// run sends an operation on some parts.
func (f *Filters) run(
	ctx context.Context, operation, filter string, s bloom.Shape, parts ...int64,
) ([]int64, error) {
	k := f.store.newCall()
	defer f.store.release(k)
	k.outermost, k.script = filter, &f.store.filters
	k.weight = leaseWeight
	k.bound(ctx, f.store.Timeout)
	k.clear(8 + 3*len(parts))
	k.filterHead(k.script, f.store.Prefix, filter, operation, s, parts)
	k.args = f.store.clocked(k.args)
	if err := f.store.ask(ctx, k); err != nil {
		return nil, err
	}
	return k.reply, nil
}

// Count implements request.FilterStore.
func (f *Filters) Count(
	ctx context.Context, filter string, s bloom.Shape, part int64,
) (set [2]int64, err error) {
	reply, err := f.run(ctx, "count", filter, s, part)
	if err == nil {
		reply, err = checkFilterReply(reply, len(set))
	}
	if err = f.store.outcome(ctx, err); err != nil {
		return set, err
	}
	return [2]int64(reply), nil
}

// sweepParts is the number of parts that a script deletes.
const sweepParts = 4

// Reset implements request.FilterStore. The first script empties the filter. The next ones free its
// memory, and keep items that others add meanwhile.
func (f *Filters) Reset(ctx context.Context, filter string, s bloom.Shape) error {
	return f.store.outcome(ctx, f.reset(ctx, filter, s))
}

func (f *Filters) reset(ctx context.Context, filter string, s bloom.Shape) error {
	reply, err := f.run(ctx, "reset", filter, s)
	if err == nil && len(reply) != 1 {
		err = ErrReply
	}
	if err != nil {
		return err
	}
	var all []int64
	for part := range max(s.Parts, reply[0]) {
		all = append(all, part)
	}
	for parts := range slices.Chunk(all, sweepParts) {
		if _, err := f.run(ctx, "sweep", filter, s, parts...); err != nil {
			return err
		}
	}
	_, err = f.run(ctx, "swept", filter, s)
	return err
}

// filterHead writes the head of a command as lua/filter/filter.lua reads it.
func (a *arguments) filterHead(
	c *script, prefix, filter, operation string, s bloom.Shape, parts []int64,
) {
	name := prefix + filter + ":bf2"
	a.args = append(a.args, "evalsha", &c.sha)
	a.int(int64(1 + 2*len(parts)))
	a.args = append(a.args, name)
	for _, p := range parts {
		number := strconv.FormatInt(p, 10)
		a.name(name + ":e" + number)
		a.name(name + ":o" + number)
	}
	a.name(operation)
	a.name(s.String())
	a.int(int64(len(parts)))
	for _, p := range parts {
		a.int(p)
	}
}

// filterBatch is calls that ask one filter in one script.
type filterBatch struct {
	calls  []*call
	parts  []int64 // that they ask for, in order
	places []byte  // of the items' bits
	arguments
}

var filterBatches = sync.Pool{New: func() any { return new(filterBatch) }}

// packFilters writes the commands of calls that ask filters.
func (s *Store) packFilters(t *trip, calls []*call) {
	for len(calls) > 0 {
		first := calls[0].filter
		b := filterBatches.Get().(*filterBatch)
		b.calls, calls = shareWithFirst(b.calls, calls, func(k *call) bool {
			return k.filter.name == first.name && k.filter.shape == first.shape
		})
		s.encodeFilter(b)
		t.commands = append(t.commands, command{script: &s.filters, parcel: b, args: b.args})
	}
}

func (s *Store) encodeFilter(b *filterBatch) {
	shape := b.calls[0].filter.shape
	items := 0
	for _, k := range b.calls {
		items += len(k.filter.items)
		for _, it := range k.filter.items {
			b.parts = append(b.parts, it.Part)
		}
	}
	slices.Sort(b.parts)
	b.parts = slices.Compact(b.parts)
	b.ints = slices.Grow(b.ints, 2+len(b.parts)+2*items)
	b.names = slices.Grow(b.names, 3+2*len(b.parts))
	b.filterHead(&s.filters, s.Prefix, b.calls[0].filter.name, "ask", shape, b.parts)
	for _, k := range b.calls {
		for _, it := range k.filter.items {
			part, _ := slices.BinarySearch(b.parts, it.Part)
			b.places = shape.AppendPlaces(b.places, part+1, it)
		}
	}
	b.args = append(b.args, b.places)
	size := shape.Bits / 8
	for _, k := range b.calls {
		for _, it := range k.filter.items {
			b.int(it.Block * size)
			b.int(it.Block*size + size - 1)
		}
	}
	b.args = s.clocked(b.args)
}

func (b *filterBatch) members() []*call { return b.calls }

func (b *filterBatch) distribute(reply []int64) error {
	if _, err := checkFilterReply(reply, len(reply)); err != nil {
		for _, k := range b.calls {
			k.reply = reply
		}
		return nil
	}
	for _, k := range b.calls {
		n := len(k.filter.items)
		if n > len(reply) {
			return ErrReply
		}
		k.reply, reply = reply[:n:n], reply[n:]
	}
	if len(reply) > 0 {
		return ErrReply
	}
	return nil
}

func (b *filterBatch) release() {
	clear(b.calls)
	b.calls, b.parts, b.places = b.calls[:0], b.parts[:0], b.places[:0]
	b.clear(0)
	filterBatches.Put(b)
}
