package redisstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/headgate/headgate/internal/request"
)

// DecideShared decides the requests of as many callers in one script. It returns the order in which
// they were decided, and how many of them shared the entry of an equal one. It is for tests: Decide
// leaves to chance which callers share a script.
func (s *Store) DecideShared(
	ctx context.Context,
	requests []request.Request,
) (order []int, merged int, err error) {
	calls := make([]*call, len(requests))
	for i := range requests {
		calls[i] = s.acquireCall(ctx, requests[i:i+1])
		order = append(order, i)
	}
	for range attempts {
		b := s.encode(calls)
		slices.SortStableFunc(
			order,
			func(i, j int) int { return cmp.Compare(b.entryOf[i], b.entryOf[j]) },
		)
		merged = len(calls) - len(b.entries)
		commands := []command{{script: b.script, parcel: b, args: b.args}}
		if err := s.exchange(ctx, s.Client, commands); err != nil {
			return nil, 0, err
		}
		reply, err := commands[0].numbers.Result()
		if err == nil {
			err = b.distribute(reply)
		}
		if err != nil {
			return nil, 0, err
		}
		now, passed := periodPassed(calls[0].reply)
		if !passed {
			break
		}
		renewPeriods(requests, now)
	}
	for _, k := range calls {
		if err := k.decode(k.reply); err != nil {
			return nil, 0, err
		}
	}
	return order, merged, nil
}
