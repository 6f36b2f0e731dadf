package redistest

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	sentinels   = 3
	primaryName = "primary"
)

// Failover is a primary with replicas and three sentinels for one test, which
// may stop and kill the nodes. The sentinels promote a replica once the primary
// has been unreachable for half a second.
type Failover struct {
	// Sentinels are the host:port addresses of the sentinels.
	Sentinels []string
	// Nodes are the initial primary and its replicas.
	Nodes []*Server
}

// StartFailover starts a primary with the given number of replicas and its
// sentinels, for this test alone, and waits until all know each other. The
// program is chosen as by [Start].
func StartFailover(t testing.TB, replicas int) *Failover {
	t.Helper()
	path := firstProgram(t)
	f := &Failover{Nodes: []*Server{startProgram(t, path, false, []string{"--repl-diskless-sync", "no"}).forTest(t)}}
	_, port, err := net.SplitHostPort(f.Nodes[0].Addr)
	if err != nil {
		t.Fatal(err)
	}
	for range replicas {
		s := startProgram(t, path, false, nil).forTest(t)
		if err := s.Client(t).ReplicaOf(t.Context(), "127.0.0.1", port).Err(); err != nil {
			t.Fatal(err)
		}
		f.Nodes = append(f.Nodes, s)
	}
	f.await(t, "replication", func() error { return f.replicating(replicas) })
	for range sentinels {
		p := &process{path: path, dir: t.TempDir(), sentinel: fmt.Sprintf(`sentinel monitor %s 127.0.0.1 %s 2
sentinel down-after-milliseconds %[1]s 500
sentinel failover-timeout %[1]s 2000
`, primaryName, port)}
		t.Cleanup(p.kill)
		if _, err := p.start(); err != nil {
			t.Fatalf("start a sentinel of %s: %v", path, err)
		}
		f.Sentinels = append(f.Sentinels, p.addr())
		f.hurry(p.addr())
	}
	f.await(t, "the sentinels", func() error { return f.watched(replicas) })
	t.Logf("runs on %s with %d replicas and %d sentinels", f.Nodes[0].Name, replicas, sentinels)
	return f
}

// Client returns a new client that follows the primary, with its options changed
// by change, and closes it when the test ends.
func (f *Failover) Client(t testing.TB, change ...func(*redis.FailoverOptions)) *redis.Client {
	t.Helper()
	opt := &redis.FailoverOptions{
		MasterName: primaryName, SentinelAddrs: append([]string(nil), f.Sentinels...),
		ContextTimeoutEnabled: true,
	}
	for _, c := range change {
		c(opt)
	}
	client := redis.NewFailoverClient(opt)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Replicated returns once every replica has applied all writes that the primary
// accepted before the call.
func (f *Failover) Replicated(t testing.TB) {
	t.Helper()
	// WAIT counts the writes of its own connection.
	client := f.Nodes[0].Client(t, func(o *redis.Options) { o.PoolSize = 1 })
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	if err := client.Set(ctx, f.Nodes[0].Prefix, 1, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Del(ctx, f.Nodes[0].Prefix).Err(); err != nil {
		t.Fatal(err)
	}
	replicas := len(f.Nodes) - 1
	if n, err := client.Wait(ctx, replicas, answerTimeout/2).Result(); err != nil || int(n) != replicas {
		t.Fatalf("WAIT: %d, %v", n, err)
	}
}

// hurry makes a sentinel ask and tell every 100 ms, not only every few seconds. A program that does not
// know the command is slower.
func (f *Failover) hurry(addr string) {
	client := redis.NewClient((&Server{Addr: addr}).options())
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	_ = client.Do(ctx, "SENTINEL", "DEBUG", "INFO-PERIOD", 100,
		"PUBLISH-PERIOD", 100, "ASK-PERIOD", 100, "PING-PERIOD", 100).Err()
}

func (f *Failover) await(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(2 * answerTimeout)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (f *Failover) replicating(replicas int) error {
	info, err := f.Nodes[0].info("replication")
	if err != nil {
		return err
	}
	if info["connected_slaves"] != strconv.Itoa(replicas) {
		return fmt.Errorf("%s replicas instead of %d", info["connected_slaves"], replicas)
	}
	for _, s := range f.Nodes[1:] {
		if info, err = s.info("replication"); err != nil {
			return err
		}
		if info["master_link_status"] != "up" {
			return fmt.Errorf("%s has not caught up", s.Addr)
		}
	}
	return nil
}

func (f *Failover) watched(replicas int) error {
	for _, addr := range f.Sentinels {
		client := redis.NewSentinelClient((&Server{Addr: addr}).options())
		ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
		state, err := client.Master(ctx, primaryName).Result()
		cancel()
		_ = client.Close()
		if err != nil {
			return err
		}
		slaves, others := state["num-slaves"], state["num-other-sentinels"]
		if slaves != strconv.Itoa(replicas) || others != strconv.Itoa(sentinels-1) {
			return fmt.Errorf("%s knows %s replicas and %s other sentinels", addr, slaves, others)
		}
	}
	return nil
}
