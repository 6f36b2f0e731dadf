package semaphore_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// countingConn counts the messages of a kind that its client receives.
type countingConn struct {
	net.Conn
	kind     string
	received *atomic.Int64
}

func (c countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(bytes.Count(b[:n], []byte("\r\n"+c.kind+"\r\n"))))
	return n, err
}

func countMessages(heard *atomic.Int64) func(*redis.ClusterOptions) {
	return func(o *redis.ClusterOptions) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return countingConn{conn, "smessage", heard}, err
		}
	}
}

// shardChannels returns how many sharded channels have subscribers at these nodes.
func shardChannels(t *testing.T, nodes ...*redistest.Server) (n int) {
	t.Helper()
	for _, node := range nodes {
		client := node.Client(t)
		channels := gatetest.Must(client.PubSubShardChannels(t.Context(), "*").Result())(t)
		n += len(channels)
		_ = client.Close()
	}
	return n
}

func calls(t *testing.T, c *redistest.Cluster, command string) (n int64) {
	t.Helper()
	for _, node := range c.Nodes {
		n += node.Calls(t, command)
	}
	return n
}

// levelOnEachNode returns a level on each node of a cluster.
func levelOnEachNode(t *testing.T, c *redistest.Cluster, client *redis.ClusterClient) (levels []semaphore.Cap) {
	t.Helper()
	for _, key := range onNodes(t, client, c.Nodes...) {
		levels = append(levels, semaphore.Cap{Key: key, Limit: 1})
	}
	return levels
}

func closeGate(t *testing.T, g *core.Gate) {
	t.Helper()
	worked(t, g.Close(t.Context()))
}

// On a cluster the node of the key notifies the waiter, and no other node does.
func TestNodeOfTheKeyNotifiesWaiter(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	var heard atomic.Int64
	client := c.Client(t, countMessages(&heard))
	levels := levelOnEachNode(t, c, client)
	holders, waiters := redisGate(t, c.Client(t), core.Config{}), redisGate(t, client, core.Config{})
	holds, waits := newSemaphore(t, holders, semaphore.Config{TTL: time.Hour}), newSemaphore(t, waiters, semaphore.Config{TTL: time.Hour})
	var first []*semaphore.Lease
	var second []<-chan *semaphore.Lease
	for _, level := range levels {
		first = append(first, acquire(t, holds, level))
		second = append(second, enqueue(t, waits, level))
	}
	for _, node := range c.Nodes {
		eventually(t, "each node has its channel", func() bool { return shardChannels(t, node) == 1 })
	}
	release(t, first...)
	for _, granted := range second {
		release(t, <-granted)
	}
	eventually(t, "every message is received", func() bool { return heard.Load() == 3 })
	for _, node := range c.Nodes {
		if n := node.Calls(t, "spublish"); n < 1 || n > 2 { // one may ask whether the node knows SPUBLISH
			t.Errorf("%d sharded messages at %s", n, node.Addr)
		}
		gatetest.Equal(t, node.Calls(t, "publish"), 0, "unsharded messages at %s", node.Addr)
	}
	closeGate(t, holders)
	closeGate(t, waiters)
}

// A busy scope stays subscribed, and a hand-off costs two calls.
func TestShardedHandoffTakesTwoCalls(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1)
	h := contend(t, func() *core.Gate { return redisGate(t, c.Client(t), core.Config{}) })
	const turns = 25
	h.run(turns)
	if n := calls(t, c, "ssubscribe"); n == 0 || n >= turns*contenders/4 {
		t.Errorf("%d subscriptions for %d turns", n, turns*contenders)
	}
	// Besides two calls for each turn, a subscription makes its waiters ask again and its holder renew,
	// and a holder that was alone at first makes one more.
	if n, most := calls(t, c, "evalsha"), (2*turns+1)*contenders+3*calls(t, c, "ssubscribe"); n > most {
		t.Errorf("%d calls for %d turns, want at most %d", n, turns*contenders, most)
	}
}

// A process has one connection to each node, however many scopes it waits at, and none when nobody
// waits.
func TestOneSubscriptionConnectionPerNode(t *testing.T) {
	c := redistest.StartCluster(t, 3)
	client := c.Client(t)
	for _, node := range c.Nodes { // opens the test's own connections
		shardChannels(t, node)
	}
	before := goleak.IgnoreCurrent()
	g := redisGate(t, client, core.Config{})
	sem := newSemaphore(t, g, semaphore.Config{TTL: time.Hour})
	const scopes = 40
	use := func() (first []*semaphore.Lease, second []<-chan *semaphore.Lease) {
		for i := range scopes {
			level := semaphore.Cap{Key: newKey(t, fmt.Sprint("k", i)), Limit: 1}
			first = append(first, acquire(t, sem, level))
			second = append(second, enqueue(t, sem, level))
		}
		eventually(t, "each scope has its channel", func() bool { return shardChannels(t, c.Nodes...) == scopes })
		return first, second
	}
	first, second := use()
	for _, node := range c.Nodes {
		list, err := node.Client(t).Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
		if n := strings.Count(list, "id="); err != nil || n != 1 {
			t.Errorf("%d connections to %s, %v:\n%s", n, node.Addr, err, list)
		}
	}
	release(t, first...)
	for _, granted := range second {
		release(t, <-granted)
	}
	eventually(t, "nothing is subscribed when nobody waits", func() bool { return shardChannels(t, c.Nodes...) == 0 })
	first, second = use()
	release(t, first[1:]...)
	for _, granted := range second[1:] {
		release(t, <-granted)
	}
	eventually(t, "one channel is left", func() bool { return shardChannels(t, c.Nodes...) == 1 })
	release(t, first[0])
	release(t, <-second[0])
	closeGate(t, g)
	eventually(t, "nothing is subscribed after Close", func() bool { return shardChannels(t, c.Nodes...) == 0 })
	worked(t, client.Close())
	if err := goleak.Find(before, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9.(*clusterStateHolder).LazyReload.func1")); err != nil {
		t.Error(err)
	}
}

// A fault of a subscription costs a poll interval, and then the process subscribes again.
func TestSubscriptionRecoversFromFaults(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(t *testing.T, c *redistest.Cluster, level semaphore.Cap){
		"subscriber is killed": func(t *testing.T, c *redistest.Cluster, _ semaphore.Cap) {
			do(t, c.Nodes[0].Client(t), "CLIENT", "KILL", "TYPE", "pubsub")
		},
		"slot is moved": func(t *testing.T, c *redistest.Cluster, level semaphore.Cap) {
			moveSlot(t, c.Nodes[0], c.Nodes[1], level.Key.String())
			gatetest.Equal(t, shardChannels(t, c.Nodes[0]), 0, "channels remain on the old node")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 2)
			client := c.Client(t)
			level := levelOnEachNode(t, c, client)[0]
			g := redisGate(t, client, core.Config{})
			// With so long a TTL waiters do not poll while a slot moves.
			sem := newSemaphore(t, g, semaphore.Config{TTL: time.Hour, OnFailure: core.FailClosed})
			first := acquire(t, sem, level)
			second, third := enqueue(t, sem, level), enqueue(t, sem, level)
			eventually(t, "a channel is subscribed", func() bool { return shardChannels(t, c.Nodes[0]) == 1 })
			before := calls(t, c, "ssubscribe")
			fault(t, c, level)
			release(t, first)
			l := <-second
			eventually(t, "the channel is subscribed again", func() bool { return shardChannels(t, c.Nodes...) == 1 && calls(t, c, "ssubscribe") > before })
			release(t, l)
			release(t, <-third)
			closeGate(t, g)
		})
	}
}

// moveSlot moves the hash slot of a key, with its content.
func moveSlot(t *testing.T, from, to *redistest.Server, key string) {
	t.Helper()
	ctx, source, target := t.Context(), from.Client(t), to.Client(t)
	slot := source.ClusterKeySlot(ctx, key).Val()
	ids := [2]string{source.Do(ctx, "CLUSTER", "MYID").Val().(string), target.Do(ctx, "CLUSTER", "MYID").Val().(string)}
	keys := source.ClusterGetKeysInSlot(ctx, int(slot), 100).Val()
	host, port, err := net.SplitHostPort(to.Addr)
	if err != nil || len(keys) == 0 {
		t.Fatal(keys, err)
	}
	do(t, target, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
	do(t, source, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
	args := []any{"MIGRATE", host, port, "", 0, 10_000, "KEYS"}
	for _, k := range keys {
		args = append(args, k)
	}
	do(t, source, args...)
	do(t, target, "CLUSTER", "SETSLOT", slot, "NODE", ids[1])
	do(t, source, "CLUSTER", "SETSLOT", slot, "NODE", ids[1])
}

// If a cluster does not know sharded messages, or only its scripts cannot send them, waiters get plain
// ones from the node of the key. If its ACL forbids them, waiters poll.
func TestWithoutShardedPubSub(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		args      []string
		rules     []any
		unsharded bool
	}{
		{"commands unknown", []string{"--rename-command", "SSUBSCRIBE", "", "--rename-command", "SPUBLISH", ""}, []any{"&*", "+@all"}, true},
		{"SPUBLISH unknown", []string{"--rename-command", "SPUBLISH", ""}, []any{"&*", "+@all"}, true},
		{"commands not permitted", nil, []any{"&*", "+@all", "-ssubscribe", "-spublish", "-sunsubscribe"}, false},
		{"channels not permitted", nil, []any{"resetchannels", "+@all"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 2, test.args...)
			var admins []*redis.Client
			for _, node := range c.Nodes {
				admins = append(admins, node.Client(t))
				do(t, admins[len(admins)-1], append([]any{"ACL", "SETUSER", "deaf", "on", ">secret", "~*"}, test.rules...)...)
			}
			client := c.Client(t, func(o *redis.ClusterOptions) { o.Username, o.Password = "deaf", "secret" })
			g := redisGate(t, client, core.Config{})
			ttl := time.Second
			if test.unsharded {
				ttl = time.Hour // so that waiters do not poll
			}
			sem := newSemaphore(t, g, semaphore.Config{TTL: ttl})
			for i, level := range levelOnEachNode(t, c, client) {
				first := acquire(t, sem, level)
				second, third := enqueue(t, sem, level), enqueue(t, sem, level)
				if test.unsharded {
					eventually(t, "the process is subscribed to an unsharded channel at the node", func() bool {
						return len(admins[i].PubSubChannels(t.Context(), "*").Val()) == 1
					})
				}
				release(t, first)
				release(t, <-second)
				release(t, <-third)
			}
			if n := calls(t, c, "publish"); test.unsharded != (n > 0) {
				t.Errorf("%d unsharded messages", n)
			}
			closeGate(t, g)
		})
	}
}

// The shard of a key tells the waiters of that key.
func TestShardsOfARingWakeWaiters(t *testing.T) {
	t.Parallel()
	const keys = 8
	servers := []*redistest.Server{redistest.Start(t), redistest.Start(t)}
	var heard atomic.Int64
	ring := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"a": servers[0].Addr, "b": servers[1].Addr},
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return countingConn{conn, "message", &heard}, err
		},
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
