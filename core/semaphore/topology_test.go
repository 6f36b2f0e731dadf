package semaphore_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// countMessages makes a dialer that counts the messages that its client receives.
func countMessages(heard *atomic.Int64) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return countingConn{conn, heard}, err
	}
}

type countingConn struct {
	net.Conn
	received *atomic.Int64
}

func (c countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(bytes.Count(b[:n], []byte("\r\nmessage\r\n"))))
	return n, err
}

// A process listens to one node of a cluster and hears what is told at each of them. If its node dies, it
// listens to another.
func TestProcessListensToAnyNode(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, "--cluster-require-full-coverage", "no")
	var heard atomic.Int64
	client := c.Client(t, func(o *redis.ClusterOptions) { o.Dialer = countMessages(&heard) })
	g := redisGate(t, client, core.Config{Timeout: busyTimeout})
	sem := newSemaphore(t, g, semaphore.Config{TTL: time.Hour, OnFailure: core.FailClosed})
	keys := onNodes(t, client, c.Nodes...)
	var nodes []*redis.Client
	for _, node := range c.Nodes {
		nodes = append(nodes, node.Client(t))
	}
	listensAt := func() (at []int) {
		for i, node := range nodes {
			if len(node.PubSubChannels(t.Context(), "*").Val()) > 0 {
				at = append(at, i)
			}
		}
		return at
	}
	listens := func() bool { return len(listensAt()) == 1 }
	use := func() {
		for _, key := range keys {
			level, before := semaphore.Cap{Key: key, Limit: 1}, heard.Load()
			first := acquire(t, sem, level)
			eventually(t, "the process listens to one node", listens)
			second := enqueue(t, sem, level)
			release(t, first)
			l := <-second
			eventually(t, "the grant is told", func() bool { return heard.Load() > before })
			evict(t, sem, key)
			<-l.Lost() // the next renewal is far
		}
	}
	use()
	dead := listensAt()[0]
	c.Nodes[dead].Kill()
	nodes, keys = slices.Delete(nodes, dead, dead+1), slices.Delete(keys, dead, dead+1)
	use()
	worked(t, g.Close(t.Context()))
	eventually(t, "the process listens no more", func() bool { return len(listensAt()) == 0 })
}

// The shard of a key tells the waiters of that key.
func TestShardsOfARingWakeWaiters(t *testing.T) {
	t.Parallel()
	const keys = 8
	servers := []*redistest.Server{redistest.Start(t), redistest.Start(t)}
	var heard atomic.Int64
	ring := redis.NewRing(&redis.RingOptions{
		Addrs:  map[string]string{"a": servers[0].Addr, "b": servers[1].Addr},
		Dialer: countMessages(&heard),
	})
	defer ring.Close()
	g := redisGate(t, ring, core.Config{})
	s := newSemaphore(t, g, semaphore.Config{Name: "slots"})
	var held []*semaphore.Lease
	var waiting []<-chan *semaphore.Lease
	for i := range keys {
		level := semaphore.Cap{Key: newKey(t, fmt.Sprint("k", i)), Limit: 1}
		held = append(held, acquire(t, s, level))
		waiting = append(waiting, enqueue(t, s, level))
	}
	for _, server := range servers {
		client := server.Client(t)
		eventually(t, "the process listens to each shard", func() bool {
			return len(client.PubSubChannels(t.Context(), "*").Val()) > 0
		})
	}
	release(t, held...)
	for _, granted := range waiting {
		release(t, <-granted)
	}
	if n := heard.Load(); n < keys {
		t.Errorf("%d waiters received %d messages", keys, n)
	}
}

// A panic in a hook of the client, as it makes the connection on which the process listens or makes it
// again, ends no more than that.
func TestListeningSurvivesPanics(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(*redistest.Server, redis.Hook) redis.UniversalClient{
		"one server": func(s *redistest.Server, h redis.Hook) redis.UniversalClient {
			client := s.Client(t)
			client.AddHook(h)
			return client
		},
		"ring": func(s *redistest.Server, h redis.Hook) redis.UniversalClient {
			ring := redis.NewRing(&redis.RingOptions{
				Addrs: map[string]string{"a": s.Addr}, HeartbeatFrequency: time.Hour,
				NewClient: func(o *redis.Options) *redis.Client {
					client := redis.NewClient(o)
					client.AddHook(h)
					return client
				},
			})
			t.Cleanup(func() { _ = ring.Close() })
			return ring
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			var on atomic.Bool
			hit := make(chan struct{}, 1)
			client := connect(s, gatetest.OnCommands(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				if cmds[0].Name() == "hello" && on.Swap(false) {
					hit <- struct{}{}
					panic("hook")
				}
				return send()
			}))
			var calls sync.WaitGroup
			for range 8 { // makes the connections of the calls
				calls.Go(func() { _ = client.BLPop(t.Context(), time.Second, "nothing").Err() })
			}
			calls.Wait()
			on.Store(true)
			g := redisGate(t, client, core.Config{})
			sem := newSemaphore(t, g, semaphore.Config{})
			level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
			held := acquire(t, sem, level)
			waiting := enqueue(t, sem, level)
			<-hit
			admin := s.Client(t)
			listens := func() bool { return len(admin.PubSubChannels(t.Context(), "*").Val()) > 0 }
			eventually(t, "the process listens", listens)
			on.Store(true)
			worked(t, admin.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
			<-hit
			eventually(t, "the process listens again", listens)
			release(t, held)
			release(t, <-waiting)
		})
	}
}
