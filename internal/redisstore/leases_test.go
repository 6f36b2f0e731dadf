package redisstore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/lease"
)

// A server that answers is no outage for callers whose operations take two round trips, even if the
// two last longer than Config.Timeout.
func TestSecondRoundTripHasItsTime(t *testing.T) {
	for _, tt := range []struct {
		callers int
		trip    time.Duration
	}{{1, 40 * time.Millisecond}, {20, 20 * time.Millisecond}, {60, 20 * time.Millisecond}} {
		t.Run(fmt.Sprint(tt.callers, " callers, ", tt.trip), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *Store
				s = newTestStore(t, func(_ context.Context, cmd redis.Cmder) error {
					time.Sleep(tt.trip)
					operations := *cmd.Args()[2].(*int64) // of the short form, or times the keys of a scope
					if cmd.Args()[1] == &s.slots.sha {
						cmd.(once).SetVal(make([]int64, 1+operations))
						return nil
					}
					var reply []int64
					for range operations / scopeKeys {
						if operations > scopeKeys {
							reply = append(reply, 7)
						}
						reply = append(reply, int64(lease.Full), 6, 0, 9, 0, 0, 1)
					}
					cmd.(once).SetVal(reply)
					return nil
				})
				s.server.queue.quick = true
				leases := NewLeases(s)
				var wg sync.WaitGroup
				for i := range tt.callers {
					wg.Go(func() {
						grant, err := leases.Acquire(t.Context(), fmt.Sprintf("{a%d}:s", i), slotRequest(fmt.Sprint("id", i)))
						if err != nil || grant.Status != lease.Full {
							t.Errorf("%+v, %v", grant, err)
						}
					})
				}
				wg.Wait()
			})
		})
	}
}
