package keeper

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/request"
)

// releasing is a store whose releases fail with an error of that time.
type releasing struct {
	request.LeaseStore
	err      func() error
	attempts int
}

func (s *releasing) Release(_ context.Context, _ string, ids []string) ([]int64, error) {
	s.attempts++
	return make([]int64, len(ids)), s.err()
}

// A slot is given back when a server goes on that stood still for longer than the lease: it may have
// the acquire to run. A server that answers with an error is asked until the lease would have ended.
func TestSlotIsGivenBackAfterOutage(t *testing.T) {
	const ttl = 10 * time.Second
	tests := map[string]struct {
		fault       error
		outage      time.Duration
		first, last time.Duration // the last release is sent between these
	}{
		"silence":             {context.DeadlineExceeded, time.Minute, time.Minute, time.Minute + ttl},
		"a closed connection": {redis.ErrClosed, time.Minute, time.Minute, time.Minute + ttl},
		"silence for ever":    {context.DeadlineExceeded, time.Hour, 6 * ttl, 8 * ttl},
		"no permission":       {noPermission("NOPERM"), time.Minute, ttl / 2, ttl},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := New(Config{Tasks: new(breaker.Tasks)})
				began := time.Now()
				last := began
				store := &releasing{err: func() error {
					last = time.Now()
					if last.Sub(began) < tt.outage {
						return tt.fault
					}
					return nil
				}}
				k.Abandon(store, "{k}", "id", ttl)
				time.Sleep(tt.outage + 2*ttl)
				synctest.Wait()
				if took := last.Sub(began); took < tt.first || took > tt.last {
					t.Errorf("the last release was sent after %v, want %v to %v", took, tt.first, tt.last)
				}
				if store.attempts > 60 {
					t.Errorf("%d releases were sent", store.attempts)
				}
				if err := k.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

type noPermission string

func (e noPermission) Error() string { return string(e) }
func (e noPermission) RedisError()   {}
