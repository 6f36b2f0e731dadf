package semaphore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/redistest"
)

// No lease is lost over a link whose round trip takes a fifth of the TTL, though all connections were
// cut, and a new one of the client takes several round trips.
func TestLeasesSurviveASlowLink(t *testing.T) {
	const ttl = 10 * time.Second
	for name, change := range map[string]func(o *redis.Options){
		"default client": func(o *redis.Options) { *o = redis.Options{Addr: o.Addr} },
		"advised client": func(o *redis.Options) { o.ContextTimeoutEnabled, o.DialerRetries = true, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			link := redistest.StartLink(t, s.Addr)
			client := s.Client(t, func(o *redis.Options) {
				o.Addr = link.Addr
				change(o)
			})
			g := redisGate(t, client, core.Config{Timeout: time.Second})
			sem := newSemaphore(t, g, semaphore.Config{TTL: ttl})
			var leases []*semaphore.Lease
			for i := range 20 {
				leases = append(leases, acquire(t, sem, semaphore.Cap{Key: newKey(t, fmt.Sprint("k", i)), Limit: 1}))
			}
			link.Delay(ttl / 5)
			link.Cut()
			time.Sleep(3 * ttl / 2) // a lease that is not renewed is lost by then
			for _, l := range leases {
				select {
				case <-l.Lost():
					t.Error("a lease is lost")
				default:
				}
			}
			link.Delay(0)
			release(t, leases...)
		})
	}
}
