package redisstore_test

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/redisstore"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

// A burst that a slow link cannot carry in time is overload: the server answers in between.
func TestBurstOverASlowLinkIsOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore(t, func(_ context.Context, cmd redis.Cmder) error {
			time.Sleep(30 * time.Millisecond)             // more than half of the store's Timeout
			reply := make([]int64, cmd.Args()[2].(int64)) // for each key
			for i := range reply {
				reply[i] = -2 // allowed
			}
			setReply(cmd, reply)
			return nil
		})
		var callers sync.WaitGroup
		for i := range 1000 {
			callers.Go(func() {
				err := s.Decide(t.Context(), requests(t, fmt.Sprintf("{%d}", i)))
				if err != nil && !errors.Is(err, trips.ErrOverloaded) {
					t.Error(err)
				}
			})
		}
		callers.Wait()
	})
}

// A panic in a hook of the client reaches one caller, and the others get an error.
func TestPanicReachesOneCaller(t *testing.T) {
	s := newTestStore(t, func(context.Context, redis.Cmder) error { panic("hook") })
	defer func() {
		gatetest.Equal(t, recover(), "hook", "panic")
	}()
	_ = s.Decide(t.Context(), requests(t, "a"))
}

// A release does not overtake the acquire of its slot, whose caller has left.
func TestReleaseFollowsItsAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := make(chan string, 10)
		answers := make(map[string]chan struct{})
		for _, id := range []string{"second", "third", "fourth", "fifth"} {
			answers[id] = make(chan struct{})
		}
		s := newTestStore(t, func(_ context.Context, cmd redis.Cmder) error {
			operation, id := leaseOperation(cmd)
			sent <- operation + " " + id
			if held := answers[id]; held != nil {
				<-held
			}
			answerLease(cmd)
			return nil
		})
		leases := redisstore.NewLeases(s)
		acquire := func(ctx context.Context, id string) {
			_, err := leases.Acquire(ctx, "{"+id+"}", slotRequest(id))
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
		release := func(id string) {
			gatetest.Worked(t, leases.Release(t.Context(), "{"+id+"}", []string{id}))
		}
		acquire(t.Context(), "first") // from then on the server is known to be quick
		release("first")
		for _, id := range []string{"second", "third", "fourth"} {
			go acquire(t.Context(), id)
		}
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		go acquire(ctx, "fifth")
		synctest.Wait()
		for _, id := range []string{"second", "third", "fourth"} {
			close(answers[id])
			synctest.Wait()
		}
		leave() // nothing but the fifth is under way
		synctest.Wait()
		go release("fifth")
		synctest.Wait()
		gatetest.Equal(t, len(sent), 6, "operations were sent before the server had answered the acquire")
		close(answers["fifth"])
		synctest.Wait()
		close(sent)
		var last string
		for last = range sent {
		}
		gatetest.Equal(t, last, "release fifth", "was sent last")
	})
}

// Two round trips are in flight at a time, and a third only while no decision waits.
func TestThirdRoundTripIsForLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := make(chan chan []int64, 10)
		s := newTestStore(t, func(_ context.Context, cmd redis.Cmder) error {
			reply := make(chan []int64)
			sent <- reply
			setReply(cmd, <-reply)
			return nil
		})
		decide := func(key string) {
			gatetest.Worked(t, s.Decide(t.Context(), requests(t, key)))
		}
		sends := func(want int) (next chan []int64) {
			t.Helper()
			synctest.Wait()
			gatetest.Equal(t, len(sent), want, "round trips began")
			for range want {
				next = <-sent
			}
			return next
		}
		go decide("a")
		first := sends(1)
		go decide("b")
		second := sends(1)
		release := func() {
			gatetest.Worked(t, redisstore.NewLeases(s).Release(t.Context(), "{k}", []string{"id"}))
		}
		go release()
		third := sends(1)
		go decide("c")
		sends(0)
		third <- []int64{1}
		sends(0)
		go release()
		sends(0)
		first <- []int64{0, 0, 0, 1}
		decided := sends(1)
		decided <- []int64{0, 0, 0, 1}
		released := sends(1) // in the same pipeline
		released <- []int64{1}
		second <- []int64{0, 0, 0, 1}
		synctest.Wait()
	})
}

// Operations that look after a lease in the background wait for longer than Config.Timeout.
func TestKeeperOutwaitsTimeout(t *testing.T) {
	for _, operation := range []string{"renew", "release"} {
		t.Run(operation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stall := time.Duration(0)
				s := newTestStore(t, func(ctx context.Context, cmd redis.Cmder) error {
					select {
					case <-time.After(stall):
					case <-ctx.Done():
						return ctx.Err()
					}
					answerLease(cmd)
					return nil
				})
				leases := redisstore.NewLeases(s)
				send := func() error {
					ctx := deadline.Until(t.Context(), time.Now().Add(time.Minute))
					if operation == "renew" {
						_, err := leases.Renew(ctx, "{k}", 1e6, []string{"id"})
						return err
					}
					err := leases.Release(ctx, "{k}", []string{"id"})
					return err
				}
				for _, stall = range []time.Duration{0, 4 * s.Timeout} {
					if err := send(); err != nil {
						t.Errorf("a server that answers after %v: %v", stall, err)
					}
				}
			})
		})
	}
}

// A batch of refunds is bounded like any other, although each refund is answered by one number.
func TestBatchOfRefundsIsBounded(t *testing.T) {
	const maxWeight = 640
	synctest.Test(t, func(t *testing.T) {
		pass := make(chan struct{})
		var mu sync.Mutex
		most := int64(0) // charges of a batch
		s := newTestStore(t, func(_ context.Context, cmd redis.Cmder) error {
			<-pass
			keys := numberOf(cmd.Args()[2])
			mu.Lock()
			most = max(most, keys)
			mu.Unlock()
			setReply(cmd, make([]int64, keys/algorithm.MaxCharges))
			return nil
		})
		limit := tokenBucket(t)
		var callers sync.WaitGroup
		for i := range 130 {
			var charges []*request.Charge
			for j := range algorithm.MaxCharges {
				charges = append(charges, &request.Charge{
					Kind: request.KindOf(fmt.Sprint(":", i, ":", j), limit), Key: request.Key{Path: "k", Outer: 1}, Limit: limit, Reply: []int64{0, 0, 1},
				})
			}
			callers.Go(func() {
				give := []request.Request{{Terms: algorithm.Terms{Op: algorithm.Give}, Charges: charges}}
				gatetest.Worked(t, s.Decide(t.Context(), give))
			})
		}
		synctest.Wait()
		close(pass)
		callers.Wait()
		if most <= algorithm.MaxCharges || most > maxWeight {
			t.Errorf("a batch refunds up to %d charges", most)
		}
	})
}

// scopeKeys is the number of KEYS of an operation on leases.
const scopeKeys = 5

// takeSHA is the name of the script that takes slots of lone holders.
var takeSHA = fmt.Sprintf("%x", sha1.Sum([]byte(headgate.Script("take"))))

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
					operations := numberOf(cmd.Args()[2]) // of lone holders, or times the keys of a scope
					if *cmd.Args()[1].(*string) == takeSHA {
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
						grant := gatetest.Must(leases.Acquire(t.Context(), scope, ask))(t)
						gatetest.Equal(t, grant.Status, lease.Full, "got")
					})
				}
				wg.Wait()
			})
		})
	}
}
