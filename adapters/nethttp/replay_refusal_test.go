package nethttp_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// The handler of an id runs once, at whatever moment Redis refuses for a second: before the request,
// beside it, or when its handler has returned.
func TestReplayWhileRedisRefuses(t *testing.T) {
	t.Parallel()
	ids, rounds := 20, 1
	if gatetest.Long() {
		ids, rounds = 50, 7
	}
	for name, change := range map[string][2]string{
		"a right for scripts is revoked": {"-evalsha -eval", "+evalsha +eval"},
		"a right in scripts is revoked":  {"-set", "+set"},
		"the password is rotated":        {"<secret >other", "<other >secret"},
		"the user is off":                {"off", "on"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			admin := s.Client(t)
			alter := func(rules string) error {
				args := []any{"ACL", "SETUSER", "app"}
				for _, rule := range strings.Fields(rules) {
					args = append(args, rule)
				}
				if err := admin.Do(context.Background(), args...).Err(); err != nil {
					return err
				}
				return admin.Do(context.Background(), "CLIENT", "KILL", "USER", "app").Err()
			}
			if err := alter("on >secret ~* &* +@all"); err != nil {
				t.Fatal(err)
			}
			client := s.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
			gate := gatetest.Redis(t, client, core.Config{Timeout: gatetest.BusyTimeout})
			var ran sync.Map
			h := replay(t, nil, nethttp.ReplayConfig{Once: newOnce(t, gate), ID: byID, HandledStatus: 409}).
				Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					n, _ := ran.LoadOrStore(r.Header.Get("Idempotency-Key"), new(atomic.Int64))
					n.(*atomic.Int64).Add(1)
					pass(rand.N(300 * time.Millisecond)) // it pays
				}))
			for round := range rounds {
				var clients sync.WaitGroup
				for i := range ids {
					clients.Go(func() {
						id := fmt.Sprint(round, "-", i)
						pass(rand.N(1400 * time.Millisecond))
						for begun := time.Now(); ; pass(100 * time.Millisecond) {
							r := get(h, withID(id))
							if r.StatusCode == http.StatusConflict && r.Header.Get("Retry-After") == "" {
								return // it was handled
							}
							if time.Since(begun) > gatetest.LongTimeout {
								t.Errorf("%s: status %d at last", id, r.StatusCode)
								return
							}
						}
					})
				}
				pass(200 * time.Millisecond)
				if err := alter(change[0]); err != nil {
					t.Error(err)
				}
				pass(time.Second)
				if err := alter(change[1]); err != nil {
					t.Error(err)
				}
				clients.Wait()
			}
			ran.Range(func(id, n any) bool {
				if n := n.(*atomic.Int64).Load(); n != 1 {
					t.Errorf("the handler of %v ran %d times", id, n)
				}
				return true
			})
		})
	}
}

// pass lets time pass.
func pass(d time.Duration) { <-time.After(d) }
