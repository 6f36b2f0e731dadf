package core_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// deafConn loses what is published while its client is deaf, and notes that.
type deafConn struct {
	net.Conn
	deaf *atomic.Bool
	lost *atomic.Int64
}

func (c deafConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.deaf.Load() || !bytes.Contains(b[:n], []byte("\r\nmessage\r\n")) {
			return n, err
		}
		c.lost.Add(1)
	}
}

// subscribed waits until somebody listens.
func subscribed(t *testing.T, s *redistest.Server) {
	t.Helper()
	for client := s.Client(t); len(client.PubSubChannels(t.Context(), "*").Val()) == 0; {
		if t.Context().Err() != nil {
			t.Fatal(t.Context().Err())
		}
	}
}

// A message that is lost costs the time until who waits asks by himself.
func TestLostMessage(t *testing.T) {
	s := redistest.Start(t)
	var deaf atomic.Bool
	var lost atomic.Int64
	client := s.Client(t, func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return deafConn{conn, &deaf, &lost}, err
		}
	})
	// The lease is long: who is let in without hearing of it must ask before it is given to the
	// next.
	for name, lease := range map[string]time.Duration{"short": time.Second, "long": time.Hour} {
		t.Run(name, func(t *testing.T) {
			deaf.Store(false)
			lost.Store(0)
			g := redisGate(t, client, core.Config{Prefix: s.Prefix})
			sem := semaphore(t, g, core.SemaphoreConfig{TTL: lease})
			level := core.Level{Key: newKey(t, "k"), Limit: 1}
			first := take(t, sem, level)
			second := queue(t, sem, level)
			subscribed(t, s)
			deaf.Store(true)
			free(t, first)
			l := <-second
			if lost.Load() == 0 {
				t.Error("no message was lost")
			}
			free(t, l)
			if err := g.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Where nobody may publish or subscribe, who waits asks by himself.
func TestWithoutPubSub(t *testing.T) {
	s := redistest.Start(t)
	do(t, s.Client(t), "ACL", "SETUSER", "deaf", "on", ">secret", "~*", "resetchannels", "+@all", "-@pubsub")
	client := s.Client(t, func(o *redis.Options) { o.Username, o.Password = "deaf", "secret" })
	g := redisGate(t, client, core.Config{})
	sem := semaphore(t, g, core.SemaphoreConfig{TTL: time.Second})
	level := core.Level{Key: newKey(t, "k"), Limit: 1}
	first := take(t, sem, level)
	second := queue(t, sem, level)
	third := queue(t, sem, level)
	free(t, first)
	free(t, <-second)
	free(t, <-third)
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if keys := s.Client(t).Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("keys remain: %v", keys)
	}
}

// A lease that cannot be renewed is lost when its time is over, also while the call that would
// renew it hangs.
func TestLeaseOnDeadRedis(t *testing.T) {
	s := redistest.Start(t)
	client := s.Client(t, func(o *redis.Options) { o.ReadTimeout = -1 })
	g := redisGate(t, client, core.Config{Timeout: time.Minute})
	t.Cleanup(func() { _ = g.Close(context.Background()) })
	l := take(t, semaphore(t, g, core.SemaphoreConfig{TTL: time.Second}), core.Level{Key: newKey(t, "k"), Limit: 1})
	s.Stop()
	t.Cleanup(s.Continue)
	select {
	case <-l.Context().Done():
		if cause := context.Cause(l.Context()); !errors.Is(cause, core.ErrLeaseLost) {
			t.Error(cause)
		}
	case <-time.After(patient):
		t.Error("still believed in")
	}
}

// When a replica takes over, leases that reached it go on, and are given to the next when they are
// released.
func TestFailoverOfLeases(t *testing.T) {
	f := redistest.StartFailover(t, 1)
	client := f.Client(t, func(o *redis.FailoverOptions) { o.DialerRetries = 1 })
	g := redisGate(t, client, core.Config{Timeout: time.Second})
	sem := semaphore(t, g, core.SemaphoreConfig{TTL: 20 * time.Second, OnFailure: core.Closed})
	level := core.Level{Key: newKey(t, "k"), Limit: 1}
	first := take(t, sem, level)
	f.Replicated(t)
	f.Nodes[0].Kill()
	before := first.Until()
	for !first.Until().After(before) { // until it is renewed
		if err := first.Context().Err(); err != nil {
			t.Fatal(context.Cause(first.Context()))
		}
		_, _ = sem.TryAcquire(t.Context(), core.SlotRequest{Levels: []core.Level{level}})
	}
	second := queue(t, sem, level)
	free(t, first)
	l := <-second
	if l.Token() <= first.Token() {
		t.Errorf("token %d after %d", l.Token(), first.Token())
	}
	free(t, l)
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
	keys := client.Keys(t.Context(), "*").Val()
	keys = slices.DeleteFunc(keys, func(key string) bool { return strings.Contains(key, "{ping}:probe") }) // the circuit's
	if len(keys) > 0 {
		t.Errorf("keys remain: %v", keys)
	}
}

// On a cluster who waits hears of his turn whatever node his key is on.
func TestLeasesOnCluster(t *testing.T) {
	c := redistest.StartCluster(t, 3)
	for i, client := range []*redis.ClusterClient{c.Client(t), c.Client(t)} {
		g := redisGate(t, client, core.Config{})
		sem := semaphore(t, g, core.SemaphoreConfig{TTL: time.Hour})
		for _, outermost := range []string{"a", "b", "c", "d"} { // of all nodes
			tenant := core.Level{Key: newKey(t, outermost), Limit: 2}
			user := core.Level{Key: newKey(t, outermost, "user"), Limit: 1}
			first := take(t, sem, tenant, user)
			granted := queue(t, sem, tenant, user)
			free(t, first)
			free(t, <-granted)
		}
		if err := g.Close(t.Context()); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	for _, s := range c.Nodes {
		if keys := s.Client(t).Keys(t.Context(), "*").Val(); len(keys) > 0 {
			t.Errorf("keys remain: %v", keys)
		}
	}
}

// While Redis stands still every caller is answered by the mode, and who waits in this process goes
// back to Redis when it answers again.
func TestWaitersReturnToRedis(t *testing.T) {
	s := redistest.Start(t)
	g := redisGate(t, s.Client(t), core.Config{Timeout: brief})
	sem := semaphore(t, g, core.SemaphoreConfig{})
	level := core.Level{Key: newKey(t, "k"), Limit: 3}
	viaRedis(t, g, core.Charge{Policy: limited(t, "p", frozen(1)), Key: newKey(t, "z")})
	s.Stop()
	var held []*core.Lease
	for range 3 {
		l := take(t, sem, level)
		if l.Token() != 0 {
			t.Errorf("token %d without Redis", l.Token())
		}
		held = append(held, l)
	}
	if _, err := sem.TryAcquire(t.Context(), core.SlotRequest{Levels: []core.Level{level}}); !errors.Is(err, core.ErrFull) {
		t.Errorf("one more: %v", err)
	}
	waiting := queue(t, sem, level)
	s.Continue()
	l := <-waiting
	if l == nil || l.Token() == 0 {
		t.Errorf("it has waited for a slot of this process: %v", l)
	}
	free(t, append(held, l)...)
}

// A subscription that hangs holds up nobody: other leases are lost in time, and calls end by their
// contexts.
func TestSubscriptionHangs(t *testing.T) {
	s := redistest.Start(t)
	client := s.Client(t, func(o *redis.Options) {
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = time.Hour, time.Hour, time.Hour
	})
	g := redisGate(t, client, core.Config{Timeout: brief})
	sem := semaphore(t, g, core.SemaphoreConfig{TTL: time.Second, OnFailure: core.Closed})
	l := take(t, sem, core.Level{Key: newKey(t, "k"), Limit: 1})
	s.Stop()
	defer s.Continue()
	done := make(chan error, 1)
	go func() {
		_, err := sem.Acquire(t.Context(), core.SlotRequest{Levels: []core.Level{{Key: newKey(t, "other"), Limit: 1}}})
		done <- err
	}()
	for _, what := range []struct {
		name string
		over func() <-chan struct{}
	}{
		{"the lease is not lost", l.Lost},
		{"the call does not end", func() <-chan struct{} {
			over := make(chan struct{})
			go func() {
				if err := <-done; err == nil {
					t.Error("acquired")
				}
				close(over)
			}()
			return over
		}},
	} {
		select {
		case <-what.over():
		case <-time.After(patient):
			t.Fatal(what.name)
		}
	}
}
