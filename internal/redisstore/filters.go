package redisstore

import (
	"context"
	"slices"

	"github.com/headgate/headgate/internal/bloom"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

// Filters is a request.FilterStore on Redis. Each method ends when its context does. It is safe for
// concurrent use.
type Filters struct{ store *Store }

var _ request.FilterStore = (*Filters)(nil)

// NewFilters returns the filters of a Store.
func NewFilters(s *Store) *Filters { return &Filters{s} }

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

// ask asks for items, and begins the filter if Redis has no record of it.
func (f *Filters) ask(
	ctx context.Context, filter string, s bloom.Shape, items []bloom.Item,
) ([]int64, error) {
	for {
		replies, err := f.askRecorded(ctx, filter, s, items)
		if err != nil || !slices.Contains(replies, bloom.Begin) {
			return replies, err
		}
		adds := slices.ContainsFunc(items, func(i bloom.Item) bool { return i.Add })
		lost, err := f.begin(ctx, filter, s, adds)
		if err != nil {
			return nil, err
		}
		if lost || !adds {
			answer := int64(bloom.Absent)
			if lost {
				answer = bloom.Lost
			}
			return slices.Repeat([]int64{answer}, len(items)), nil
		}
	}
}

func (f *Filters) askRecorded(
	ctx context.Context, filter string, s bloom.Shape, items []bloom.Item,
) ([]int64, error) {
	k := f.store.newQuestion(filter, s, items)
	defer k.release()
	k.Bound(ctx, f.store.Timeout)
	if err := f.store.Servers.Do(ctx, &k.Call); err != nil {
		return nil, err
	}
	return checkFilterReply(k.reply, len(items))
}

// begin looks for bits of a filter without a record, and reports whether there are some. If there are
// none, it makes the record if items are to be added.
func (f *Filters) begin(
	ctx context.Context, filter string, s bloom.Shape, adds bool,
) (lost bool, err error) {
	record := int64(0)
	if adds {
		record = 1
	}
	reply, err := f.run(ctx, "begin", filter, s, partsUpTo(s.Parts), record)
	if err == nil {
		reply, err = checkFilterReply(reply, 1)
	}
	return err == nil && reply[0] == 1, err
}

// partsUpTo returns the numbers of n parts.
func partsUpTo(n int64) []int64 {
	all := make([]int64, n)
	for i := range all {
		all[i] = int64(i)
	}
	return all
}

// run sends an operation on some parts.
func (f *Filters) run(
	ctx context.Context, operation, filter string, s bloom.Shape, parts []int64, args ...int64,
) ([]int64, error) {
	k := f.store.newSingle(f.store.filter, filter)
	k.Bound(ctx, f.store.Timeout)
	k.filterHead(f.store.Prefix, filter, operation, s, parts)
	for _, n := range args {
		k.int(n)
	}
	if err := f.store.Servers.Do(ctx, &k.Call); err != nil {
		return nil, err
	}
	return k.reply.Numbers, nil
}

// Count implements request.FilterStore.
func (f *Filters) Count(
	ctx context.Context, filter string, s bloom.Shape, part int64,
) (set [2]int64, err error) {
	reply, err := f.run(ctx, "count", filter, s, []int64{part})
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
	reply, err := f.run(ctx, "reset", filter, s, nil)
	if err == nil && len(reply) != 1 {
		err = trips.ErrReply
	}
	if err != nil {
		return err
	}
	for parts := range slices.Chunk(partsUpTo(max(s.Parts, reply[0])), sweepParts) {
		if _, err := f.run(ctx, "sweep", filter, s, parts); err != nil {
			return err
		}
	}
	_, err = f.run(ctx, "swept", filter, s, nil)
	return err
}
