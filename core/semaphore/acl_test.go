package semaphore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// A user that may not use a command of the semaphores' scripts is refused, and the slot that it got
// without that command stays taken.
func TestForbiddenCommandKeepsSlot(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	admin := s.Client(t)
	for _, command := range []string{"hset", "zadd", "pexpire"} {
		t.Run(command, func(t *testing.T) {
			do(t, admin, "ACL", "SETUSER", command, "on", ">secret", "~*", "&*", "+@all", "-"+command)
			client := s.Client(t, func(o *redis.Options) { o.Username, o.Password = command, "secret" })
			g := redisGate(t, client, core.Config{})
			sem := newSemaphore(t, g, semaphore.Config{Name: command, TTL: time.Hour, OnFailure: core.FailClosed})
			ask := semaphore.Request{Caps: []semaphore.Cap{{Key: newKey(t, "k"), Limit: 1}}}
			l := gatetest.Must(sem.Acquire(t.Context(), ask))(t)
			for range 3 {
				if _, err := sem.Acquire(t.Context(), ask); !errors.Is(err, core.ErrMisconfigured) {
					t.Error(err)
				}
			}
			worked(t, l.Extend(t.Context()))
			release(t, l)
		})
	}
}
