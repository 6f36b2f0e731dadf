package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/request"
)

func tokenBucket(t *testing.T) algorithm.Limit {
	t.Helper()
	limit, err := algorithm.NewTokenBucket(1, time.Second, 1)
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

func requests(t *testing.T, key string) []request.Request {
	limit := tokenBucket(t)
	c := &request.Charge{Key: key, Outer: 1, Suffix: ":p", Limit: limit, Units: 1, Cost: limit.Cost(1)}
	return []request.Request{{Op: algorithm.Decide, Charges: []*request.Charge{c}}}
}

// answering is a hook that answers the commands of a client.
type answering func(ctx context.Context, cmd redis.Cmder) error

func (h answering) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h answering) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h(ctx, cmd) }
}

func (h answering) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			cmd.SetErr(h(ctx, cmd))
		}
		return nil
	}
}

// newTestStore returns a store whose scripts the test answers. Its probes find no connection.
func newTestStore(t *testing.T, answer answering) *Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	tasks := new(breaker.Tasks)
	t.Cleanup(func() {
		tasks.Stop()
		if err := tasks.Wait(context.Background()); err != nil {
			t.Error(err)
		}
		client.Close()
	})
	client.AddHook(answer)
	probe := requests(t, "p")[0]
	return New(Config{
		Client: client, Timeout: 50 * time.Millisecond, Tasks: tasks,
		Probe: func(string) request.Request { return probe },
	})
}

// Callers leave a silent server within their time.
func TestCallersLeaveASilentServer(t *testing.T) {
	s := newTestStore(t, func(ctx context.Context, _ redis.Cmder) error {
		<-ctx.Done()
		return ctx.Err()
	})
	var callers sync.WaitGroup
	for range 5 { // the first two are sent, the others wait
		callers.Go(func() {
			err := s.Decide(t.Context(), requests(t, "a"))
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrOpen) {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if n := s.Waiting(); n > 0 {
		t.Errorf("%d calls wait", n)
	}
}

// A burst that a slow link cannot carry in time is overload: the server answers in between.
func TestBurstOverASlowLinkIsOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore(t, func(_ context.Context, cmd redis.Cmder) error {
			time.Sleep(30 * time.Millisecond)               // more than half of the store's Timeout
			reply := make([]int64, *cmd.Args()[2].(*int64)) // for each key
			for i := range reply {
				reply[i] = -2 // allowed
			}
			cmd.(once).SetVal(reply)
			return nil
		})
		var callers sync.WaitGroup
		for i := range 1000 {
			callers.Go(func() {
				err := s.Decide(t.Context(), requests(t, fmt.Sprintf("{%d}", i)))
				if err != nil && !errors.Is(err, ErrOverloaded) {
					t.Error(err)
				}
			})
		}
		callers.Wait()
	})
}

// A server that another has replaced is not watched, although a call that was under way doubts it.
func TestReplacedServerIsNotWatched(t *testing.T) {
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}}}, nil
		},
		Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("down") },
	})
	defer client.Close()
	tasks := new(breaker.Tasks)
	defer tasks.Stop()
	s := New(Config{
		Client: client, Cluster: true, Timeout: 50 * time.Millisecond, Tasks: tasks,
		Probe: func(string) request.Request { return requests(t, "p")[0] },
	})
	n := s.nodeOf(t.Context(), "{k}")
	s.nodes.Delete(n.addr)
	n.doubt("{k}")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := tasks.Wait(ctx); err != nil {
		t.Error(err)
	}
}

// A panic in a hook of the client reaches one caller, and the others get an error.
func TestPanicReachesOneCaller(t *testing.T) {
	s := newTestStore(t, func(context.Context, redis.Cmder) error { panic("hook") })
	defer func() {
		if got := recover(); got != "hook" {
			t.Errorf("panic %v", got)
		}
	}()
	_ = s.Decide(t.Context(), requests(t, "a"))
}

// slotRequest asks for the only slot of a scope.
func slotRequest(id string) lease.Request {
	return lease.Request{
		ID: id, Lease: 1e6, Channel: "c", Metadata: "-", Levels: []lease.Level{{Node: "{a}", Limit: 1, Weight: 1}},
	}
}

// leaseOperation returns the one operation on a lease that a command is, and its id.
func leaseOperation(cmd redis.Cmder) (operation, id string) {
	argv := cmd.Args()[3+*cmd.Args()[2].(*int64):]
	if !isShort(cmd) {
		return *argv[0].(*string), *argv[1].(*string)
	}
	if *argv[0].(*int64) == 1 {
		return "acquire", strings.Fields(*argv[2].(*string))[2]
	}
	return "release", *argv[1].(*string)
}

// isShort reports whether an operation on a lease is in the short form.
func isShort(cmd redis.Cmder) bool { return *cmd.Args()[2].(*int64) == 1 }

// answerLease lets an operation on a lease succeed.
func answerLease(cmd redis.Cmder) {
	reply := []int64{1, 1}
	if !isShort(cmd) {
		reply = reply[:1]
	}
	cmd.(once).SetVal(reply)
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
		leases := NewLeases(s)
		acquire := func(ctx context.Context, id string) {
			_, err := leases.Acquire(ctx, "{"+id+"}", slotRequest(id))
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
		release := func(id string) {
			if _, err := leases.Release(t.Context(), "{"+id+"}", []string{id}); err != nil {
				t.Error(err)
			}
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
		if n := len(sent); n != 6 {
			t.Errorf("%d operations were sent before the server had answered the acquire", n)
		}
		close(answers["fifth"])
		synctest.Wait()
		close(sent)
		var last string
		for last = range sent {
		}
		if last != "release fifth" {
			t.Errorf("%s was sent last", last)
		}
	})
}

// Two round trips are in flight at a time, and a third only while no decision waits.
func TestThirdRoundTripIsForLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := make(chan chan []int64, 10)
		s := newTestStore(t, func(_ context.Context, cmd redis.Cmder) error {
			reply := make(chan []int64)
			sent <- reply
			cmd.(once).SetVal(<-reply)
			return nil
		})
		decide := func(key string) {
			if err := s.Decide(t.Context(), requests(t, key)); err != nil {
				t.Error(err)
			}
		}
		sends := func(want int) (next chan []int64) {
			t.Helper()
			synctest.Wait()
			if n := len(sent); n != want {
				t.Errorf("%d round trips began, want %d", n, want)
			}
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
			if _, err := NewLeases(s).Release(t.Context(), "{k}", []string{"id"}); err != nil {
				t.Error(err)
			}
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
		released := sends(1)
		released <- []int64{1, 1}
		decided := sends(1) // in the same pipeline
		decided <- []int64{0, 0, 0, 1}
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
				leases := NewLeases(s)
				send := func() error {
					ctx := deadline.Until(t.Context(), time.Now().Add(time.Minute))
					if operation == "renew" {
						_, err := leases.Renew(ctx, "{k}", 1e6, []string{"id"})
						return err
					}
					_, err := leases.Release(ctx, "{k}", []string{"id"})
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
	limit := tokenBucket(t)
	var charges []*request.Charge
	for range algorithm.MaxCharges {
		charges = append(charges, &request.Charge{Key: "k", Outer: 1, Limit: limit, Reply: []int64{0, 0, 1}})
	}
	s := New(Config{})
	q := s.server.queue
	for range maxBatchCalls {
		q.waiting = append(q.waiting, s.acquireCall(t.Context(), []request.Request{{Op: algorithm.Give, Charges: charges}}))
	}
	n := 0
	for _, w := range q.take().calls {
		n += len(w.requests[0].Charges)
	}
	if n == 0 || n > maxBatchWeight {
		t.Errorf("a batch refunds %d charges", n)
	}
}
