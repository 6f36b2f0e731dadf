package semaphore_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/redistest"
)

// plainConn counts the messages that its client receives.
type plainConn struct {
	net.Conn
	received *atomic.Int64
}

func (c plainConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(bytes.Count(b[:n], []byte("\r\nmessage\r\n"))))
	return n, err
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
			return plainConn{conn, &heard}, err
		},
	})
	defer ring.Close()
	g := redisGate(t, ring, core.Config{})
	s := newSemaphore(t, g, semaphore.Config{Name: "slots"})
	var served sync.WaitGroup
	var held []*semaphore.Lease
	for i := range keys {
		level := semaphore.Cap{Key: newKey(t, fmt.Sprint("k", i)), Limit: 1}
		held = append(held, acquire(t, s, level))
		queued := make(chan struct{})
		tell := sync.OnceFunc(func() { close(queued) })
		served.Go(func() {
			l, err := s.Acquire(t.Context(), semaphore.Request{
				Caps: []semaphore.Cap{level}, MaxWait: longTimeout,
				OnQueue: func(int) { tell() },
			})
			if err != nil {
				t.Error(err)
				return
			}
			release(t, l)
		})
		<-queued
	}
	for _, server := range servers {
		client := server.Client(t)
		eventually(t, "the process listens to each shard", func() bool {
			return len(client.PubSubChannels(t.Context(), "*").Val()) > 0
		})
	}
	for _, l := range held {
		release(t, l)
	}
	served.Wait()
	if n := heard.Load(); n < keys {
		t.Errorf("%d waiters received %d messages", keys, n)
	}
}
