package stored

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// slots reads the semaphores.
func (r *Reader) slots(
	ctx context.Context, server redis.Cmdable, s *Subject, found []Found,
) error {
	var names []string
	for _, f := range found {
		if f.Kind == Scope && !slices.Contains(names, f.Of) {
			names = append(names, f.Of)
		}
	}
	var errs []error
	for _, name := range names {
		at := found[slices.IndexFunc(found, func(f Found) bool { return f.Kind == Scope })]
		one := Slots{Semaphore: name, Outermost: at.Path}
		err := r.scope(ctx, server, &one, s.At.UnixMicro())
		if err != nil {
			errs = append(errs, fmt.Errorf("slots of %s: %w", name, err))
			continue
		}
		if len(one.Holders)+len(one.Waiters) > 0 {
			s.Slots = append(s.Slots, one)
		}
	}
	return errors.Join(errs...)
}

// scope reads the parts of a scope in one round trip.
func (r *Reader) scope(
	ctx context.Context, server redis.Cmdable, s *Slots, now int64,
) error {
	name := r.Prefix + s.Outermost + ":" + s.Semaphore + ":" + scopeTag + ":"
	pipe := server.Pipeline()
	lone := pipe.Get(ctx, name+"m") // either of the two has another type
	records := pipe.HGetAll(ctx, name+"m")
	holders := pipe.ZRangeWithScores(ctx, name+"h", 0, -1)
	waiters := pipe.ZRange(ctx, name+"w", 0, -1)
	patience := pipe.ZRangeWithScores(ctx, name+"p", 0, -1)
	if err := r.exec(ctx, pipe); err != nil {
		return err
	}
	raw := rawScope{
		lone: lone.Val(), records: records.Val(), holders: holders.Val(),
		waiters: waiters.Val(), patience: patience.Val(),
	}
	return raw.decode(s, now)
}
