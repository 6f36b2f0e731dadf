package semaphore_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/redistest"
)

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
