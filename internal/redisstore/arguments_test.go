package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/bloom"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redisstore"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

// The weights of operations on many ids, and of questions about many parts of a filter, bound the
// arguments of the scripts that they share.
func TestArgumentsOfBulkOperationsAreBounded(t *testing.T) {
	const ids = 256
	answerRenewals := func(args []any) (reply []int64) {
		calls := int(numberOf(args[2])) / scopeKeys
		for range calls {
			if calls > 1 {
				reply = append(reply, ids)
			}
			reply = append(reply, make([]int64, ids)...)
		}
		return reply
	}
	shape := bloom.Shape{Bits: 64, Blocks: 1000, Parts: 500, Hashes: 1}
	for name, test := range map[string]struct {
		send   func(s *redisstore.Store, i int) error
		answer func(args []any) []int64
	}{
		"renewals": {
			func(s *redisstore.Store, i int) error {
				scope, all := fmt.Sprintf("{k%d}:s", i), make([]string, ids)
				_, err := redisstore.NewLeases(s).Renew(context.Background(), scope, 1e6, all)
				return err
			},
			answerRenewals,
		},
		"renewals of many scopes": {
			func(s *redisstore.Store, i int) error {
				var all []*request.Renewal
				for j := range 20 {
					scope := fmt.Sprintf("{k%d}:s%d", i, j)
					all = append(all, &request.Renewal{Scope: scope, Micros: 1e6, IDs: make([]string, ids)})
				}
				ctx := deadline.Until(context.Background(), time.Now().Add(time.Second))
				redisstore.NewLeases(s).RenewAll(ctx, all, false)
				var errs []error
				for _, r := range all {
					if errs = append(errs, r.Err); len(r.Left) != ids {
						errs = append(errs, fmt.Errorf("%d leases of %d", len(r.Left), ids))
					}
				}
				return errors.Join(errs...)
			},
			answerRenewals,
		},
		"questions": {
			func(s *redisstore.Store, i int) error {
				var items []bloom.Item
				for part := range shape.Parts {
					items = append(items, bloom.Item{Part: part, Block: int64(i)})
				}
				_, err := redisstore.NewFilters(s).Ask(context.Background(), "{f}", shape, items[:200])
				return err
			},
			func(args []any) []int64 {
				keys := int(numberOf(args[2]))
				places := 4 + keys + 2 + (keys-1)/2 // operation, shape, number of parts, parts
				return make([]int64, (len(args)-places-1)/2)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pass := make(chan struct{})
				var mu sync.Mutex
				most := 0
				s := newTestStore(t, func(_ context.Context, cmd redis.Cmder) error {
					<-pass
					mu.Lock()
					defer mu.Unlock()
					most = max(most, len(cmd.Args())-3)
					setReply(cmd, test.answer(cmd.Args()))
					return nil
				})
				var callers sync.WaitGroup
				for i := range 60 {
					callers.Go(func() {
						gatetest.Worked(t, test.send(s, i))
					})
				}
				synctest.Wait()
				close(pass)
				callers.Wait()
				if most <= ids || most > trips.MaxArguments {
					t.Errorf("the largest script has %d arguments", most)
				}
			})
		})
	}
}
