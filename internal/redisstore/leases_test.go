package redisstore_test

import (
	"context"
	"crypto/sha1"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/redisstore"
)

// scopeKeys is the number of KEYS of an operation on leases.
const scopeKeys = 5

// slotSHA is the name of the script of slots.
var slotSHA = fmt.Sprintf("%x", sha1.Sum([]byte(headgate.Script("slot"))))

// A server that answers is no outage for callers whose operations take two round trips, even if the
// two last longer than Config.Timeout.
func TestSecondRoundTripHasItsTime(t *testing.T) {
	for _, tt := range []struct {
		callers int
		trip    time.Duration
	}{{1, 40 * time.Millisecond}, {20, 20 * time.Millisecond}, {60, 20 * time.Millisecond}} {
		t.Run(fmt.Sprint(tt.callers, " callers, ", tt.trip), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				trip := time.Duration(0)
				s := newTestStore(t, func(_ context.Context, cmd redis.Cmder) error {
					if time.Sleep(trip); trip == 0 { // to the release of warm
						setReply(cmd, []int64{1})
						return nil
					}
					operations := numberOf(cmd.Args()[2]) // of the short form, or times the keys of a scope
					if *cmd.Args()[1].(*string) == slotSHA {
						setReply(cmd, make([]int64, operations))
						return nil
					}
					var reply []int64
					for range operations / scopeKeys {
						if operations > scopeKeys {
							reply = append(reply, 7)
						}
						reply = append(reply, int64(lease.Full), 6, 0, 9, 0, 0, 1)
					}
					setReply(cmd, reply)
					return nil
				})
				warm(t, s)
				trip = tt.trip
				leases := redisstore.NewLeases(s)
				var wg sync.WaitGroup
				for i := range tt.callers {
					wg.Go(func() {
						scope, ask := fmt.Sprintf("{a%d}:s", i), slotRequest(fmt.Sprint("id", i))
						grant, err := leases.Acquire(t.Context(), scope, ask)
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
