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

func (f *Filters) ask(
	ctx context.Context, filter string, s bloom.Shape, items []bloom.Item,
) ([]int64, error) {
	k := newQuestion(f.store.schema, filter, s, items)
	defer k.release()
	k.Bound(ctx, f.store.Timeout)
	if err := f.store.Servers.Do(ctx, &k.Call); err != nil {
		return nil, err
	}
	return checkFilterReply(k.reply, len(items))
}

// run sends an operation on some parts.
func (f *Filters) run(
	ctx context.Context, operation, filter string, s bloom.Shape, parts ...int64,
) ([]int64, error) {
	k := newSingle(f.store.schema.filter, filter)
	k.Bound(ctx, f.store.Timeout)
	k.clear(8 + 3*len(parts))
	k.filterHead(f.store.schema, filter, operation, s, parts)
	k.args = f.store.schema.clocked(k.args)
	if err := f.store.Servers.Do(ctx, &k.Call); err != nil {
		return nil, err
	}
	return k.reply.Numbers, nil
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
		err = trips.ErrReply
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
