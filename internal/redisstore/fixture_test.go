package redisstore_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/redisstore"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

func tokenBucket(t *testing.T) algorithm.Limit {
	t.Helper()
	return gatetest.Must(algorithm.NewTokenBucket(1, time.Second, 1))(t)
}

func requests(t *testing.T, key string) []request.Request {
	limit := tokenBucket(t)
	c := &request.Charge{Kind: request.KindOf(":p", limit), Key: request.Key{Path: key, Outer: 1}, Limit: limit, Units: 1, Cost: limit.Cost(1)}
	return []request.Request{{Terms: algorithm.Terms{Op: algorithm.Decide}, Charges: []*request.Charge{c}}}
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
func newTestStore(t *testing.T, answer answering) *redisstore.Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	tasks := breaker.NewTasks()
	t.Cleanup(func() {
		tasks.Stop()
		gatetest.Worked(t, tasks.Wait(context.Background()))
		client.Close()
	})
	client.AddHook(answer)
	probe := requests(t, "p")[0]
	return redisstore.New(redisstore.Config{
		Config: trips.Config{Client: client, Timeout: 50 * time.Millisecond, Tasks: tasks},
		Probe:  func(string) request.Request { return probe },
	})
}

// setReply answers a script.
func setReply(cmd redis.Cmder, reply []int64) {
	if cmd, ok := cmd.(interface{ SetVal([]int64) }); ok {
		cmd.SetVal(reply)
		return
	}
	list := make([]any, len(reply))
	for i, n := range reply {
		list[i] = n
	}
	cmd.(interface{ SetVal(any) }).SetVal(list) // a reply that may be one number in place of a list
}

// numberOf returns an integer among the arguments of a script.
func numberOf(arg any) int64 { return arg.(int64) }

// slotRequest asks for the only slot of a scope.
func slotRequest(id string) lease.Request {
	return lease.Request{
		ID: id, Lease: 1e6, Channel: "c", Metadata: "-",
		Levels: []lease.Level{{Node: "{a}", Limit: 1, Weight: 1}},
	}
}

// leaseOperation returns the one operation on a lease that a command is, and its id.
func leaseOperation(cmd redis.Cmder) (operation, id string) {
	argv := cmd.Args()[3+cmd.Args()[2].(int64):]
	if cmd.Args()[2].(int64) > 1 { // not of lone holders
		return argv[0].(string), argv[1].(string)
	}
	if len(argv) > 1 {
		return "acquire", strings.Fields(argv[1].(string))[2]
	}
	return "release", strings.TrimSpace(argv[0].(string))
}

// answerLease lets an operation on a lease succeed.
func answerLease(cmd redis.Cmder) { setReply(cmd, []int64{1}) }

// warm makes a server known to be quick: it answers the release of a slot with one number.
func warm(t *testing.T, s *redisstore.Store) {
	t.Helper()
	gatetest.NoError(t, redisstore.NewLeases(s).Release(t.Context(), "{warm}:s", []string{"id"}))
}
