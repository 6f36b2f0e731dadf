package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const slots = 16384

// Cluster is a Redis or Valkey cluster of masters for one test, which may stop
// and kill its nodes.
type Cluster struct {
	// Addrs are the host:port addresses of the nodes.
	Addrs []string
	// Nodes are the masters, in the order of the slots they own.
	Nodes []*Server
}

// StartCluster starts a cluster of the given number of masters without
// replicas, for this test alone, and waits until every node serves it. The
// program is chosen as by [Start], and must be Redis 7 or later, or Valkey.
// extraArgs go to every node, such as "--cluster-node-timeout", "500" for a
// test that waits until the nodes notice a stopped one.
//
// StartCluster takes two seconds: a master refuses to serve for that long after
// its start.
func StartCluster(t testing.TB, masters int, extraArgs ...string) *Cluster {
	t.Helper()
	path := firstProgram(t)
	c := &Cluster{}
	for range masters {
		s := startProgram(t, path, true, extraArgs).forTest(t)
		c.Nodes = append(c.Nodes, s)
		c.Addrs = append(c.Addrs, s.Addr)
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	if err := c.join(ctx); err != nil {
		t.Fatalf("join %d nodes of %s: %v", masters, path, err)
	}
	c.Wait(t)
	t.Logf("runs on a cluster of %d %s", masters, c.Nodes[0].Name)
	return c
}

// Client returns a new client of the cluster, with its options changed by change,
// and closes it when the test ends. Maintenance notifications are off as in [Server.Client].
func (c *Cluster) Client(t testing.TB, change ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	t.Helper()
	opt := &redis.ClusterOptions{
		Addrs:                    append([]string(nil), c.Addrs...),
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	for _, f := range change {
		f(opt)
	}
	client := redis.NewClusterClient(opt)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Wait returns once every node knows all others and reports the cluster as ok.
// [StartCluster] calls it; a test that restarts or continues a node may call it
// again.
func (c *Cluster) Wait(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(2 * answerTimeout)
	for _, s := range c.Nodes {
		for {
			err := c.healthy(s)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("node %s of the cluster: %v; its log ends:\n%s", s.Addr, err, tail(s.process.logText(), 20))
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

func (c *Cluster) healthy(s *Server) error {
	client := redis.NewClient(s.options())
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	text, err := client.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	info, n := parseInfo(text), strconv.Itoa(len(c.Nodes))
	if info["cluster_state"] != "ok" || info["cluster_known_nodes"] != n ||
		info["cluster_size"] != n || info["cluster_slots_ok"] != strconv.Itoa(slots) {
		return fmt.Errorf("the cluster of %s is not healthy: %s", n, strings.Join(strings.Fields(text), " "))
	}
	return nil
}

func (c *Cluster) join(ctx context.Context) error {
	clients := make([]*redis.Client, len(c.Nodes))
	for i, s := range c.Nodes {
		clients[i] = redis.NewClient(s.options())
		defer func() { _ = clients[i].Close() }()
	}
	// Nodes with equal epochs first negotiate new ones, which takes time, and a
	// node accepts an epoch only before it has met another.
	for i, client := range clients {
		first, end := i*slots/len(clients), (i+1)*slots/len(clients)
		if err := client.ClusterAddSlotsRange(ctx, first, end-1).Err(); err != nil {
			return err
		}
		if err := client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return err
		}
	}
	// Every pair meets, because gossip spreads more slowly.
	for i, client := range clients {
		for j, other := range c.Nodes {
			if i == j {
				continue
			}
			err := client.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", other.process.port, other.process.busPort).Err()
			if err != nil {
				return err
			}
		}
	}
	return nil
}
