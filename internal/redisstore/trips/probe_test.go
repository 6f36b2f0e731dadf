package trips_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisstore/trips"
)

// A server dies while a probe talks to it. What it answered before the probe last asked, over the pool
// or to a call, does not say that it lives.
func TestProbeBelievesNoEarlierAnswer(t *testing.T) {
	const handshake, dies = 200 * time.Millisecond, 150 * time.Millisecond
	for name, calls := range map[string]bool{"over the pool": false, "to a call": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var dead atomic.Bool
				opened := make(chan time.Time, 1)
				s := newServersOver(t, func(context.Context, string, string) (net.Conn, error) {
					own, server := net.Pipe()
					go func() {
						defer server.Close()
						for asked := 0; ; asked++ {
							if _, err := server.Read(make([]byte, 4096)); err != nil {
								return
							}
							if asked == 0 { // the handshake
								time.Sleep(handshake)
								_, _ = server.Write([]byte("-ERR unknown command\r\n"))
							}
						}
					}()
					return own, nil
				}, func(ctx context.Context, cmds []redis.Cmder) error {
					probe := texts(cmds[0])[0] == "?"
					if dead.Load() || probe == calls || texts(cmds[0])[0] == "lost" {
						<-ctx.Done()
						return ctx.Err()
					}
					answer(cmds[0])
					return nil
				}, trips.Config{Notify: func(_ context.Context, n trips.Notice) {
					if n.Kind == trips.Opened {
						opened <- time.Now()
					}
				}})
				go func() { _ = s.Do(t.Context(), &newLetter("a", "lost").Call) }()
				began := time.Now() // of the probe, at most a timeout later
				time.Sleep(dies - time.Millisecond)
				if calls {
					if err := s.Do(t.Context(), &newLetter("a", "heard").Call); err != nil {
						t.Error(err)
					}
				}
				dead.Store(true)
				if took := (<-opened).Sub(began); took > timeout+handshake+timeout+250*time.Millisecond {
					t.Errorf("the circuit opened after %v, by a second probe", took)
				}
			})
		})
	}
}
