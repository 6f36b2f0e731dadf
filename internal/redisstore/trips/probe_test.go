package trips_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redisstore/trips"
)

// dialed returns a dialer whose connections reply to what they are asked for the n-th time.
func dialed(reply func(asked int) string) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		own, server := net.Pipe()
		go func() {
			defer server.Close()
			for asked := 0; ; asked++ {
				if _, err := server.Read(make([]byte, 4096)); err != nil {
					return
				}
				if text := reply(asked); text != "" {
					_, _ = server.Write([]byte(text))
				}
			}
		}()
		return own, nil
	}
}

// decides is the reply of a server that knows no handshake.
func decides(asked int) string {
	if asked == 0 {
		return "-ERR unknown command\r\n"
	}
	return "*1\r\n:1\r\n"
}

// A server dies while a probe talks to it. What it answered before the probe last asked, over the pool
// or to a call, does not say that it lives.
func TestProbeBelievesNoEarlierAnswer(t *testing.T) {
	const handshake, dies = 200 * time.Millisecond, 150 * time.Millisecond
	for name, calls := range map[string]bool{"over the pool": false, "to a call": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var dead atomic.Bool
				opened := make(chan time.Time, 1)
				s := newServersOver(t, dialed(func(asked int) string {
					if asked > 0 {
						return ""
					}
					time.Sleep(handshake)
					return "-ERR unknown command\r\n"
				}), func(ctx context.Context, cmds []redis.Cmder) error {
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
					gatetest.Worked(t, s.Do(t.Context(), &newLetter("a", "heard").Call))
				}
				dead.Store(true)
				if took := (<-opened).Sub(began); took > timeout+handshake+timeout+250*time.Millisecond {
					t.Errorf("the circuit opened after %v, by a second probe", took)
				}
			})
		})
	}
}

// busy is the connection of a process whose goroutines compute: a goroutine that has written waits for
// its turn before it reads.
type busy struct {
	net.Conn
	waits atomic.Bool
}

func (b *busy) Write(p []byte) (int, error) {
	b.waits.Store(true)
	return b.Conn.Write(p)
}

func (b *busy) Read(p []byte) (int, error) {
	if b.waits.Swap(false) {
		time.Sleep(turn) // in a bubble
	}
	return b.Conn.Read(p)
}

// turn is for how long a goroutine waits where 150 compute on one processor.
const turn = 3 * time.Second

// A process that starves from the first call on has a turn for each step of a probe.
func TestStarvedProbeHasATurnForEachStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int64
		dial := dialed(func(asked int) string {
			if asked == 1 {
				return "-NOSCRIPT No matching script. Please use EVAL.\r\n"
			}
			return decides(asked)
		})
		s := newServersOver(t, func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			select {
			case <-time.After(turn):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			c, err := dial(ctx, network, addr)
			return &busy{Conn: c}, err
		}, func(ctx context.Context, cmds []redis.Cmder) error {
			<-ctx.Done() // which nothing reads in time
			return ctx.Err()
		}, trips.Config{Notify: stays(t)})
		s.Starve(t, turn)
		_ = s.Do(t.Context(), &newLetter("a", "lost").Call)
		time.Sleep(10 * turn)
		if dials.Load() == 0 {
			t.Error("no probe has asked")
		}
	})
}

// A full server lives if it answers over the pool, however long it takes to connect. It refuses the
// handshake, and a proxy in front of it the first command.
func TestFullServerAnswersOverThePool(t *testing.T) {
	const full, greeted = "-ERR max number of clients reached\r\n", "-ERR unknown command\r\n"
	for name, replies := range map[string][]string{"a server": {full, ""}, "a proxy": {greeted, full}} {
		for _, connect := range []time.Duration{60 * time.Millisecond, 200 * time.Millisecond} {
			t.Run(fmt.Sprint(name, " in ", connect), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var asked atomic.Int64
					s := newServersOver(t, func(context.Context, string, string) (net.Conn, error) {
						time.Sleep(connect)
						own, server := net.Pipe()
						go func() {
							defer server.Close()
							for _, reply := range replies {
								if _, err := server.Read(make([]byte, 4096)); err != nil {
									return
								}
								asked.Add(1)
								_, _ = server.Write([]byte(reply))
							}
						}()
						return own, nil
					}, but("lost"), trips.Config{Notify: stays(t)})
					_ = s.Do(t.Context(), &newLetter("a", "lost").Call)
					time.Sleep(time.Second)
					if asked.Load() < 2 {
						t.Error("no probe has asked")
					}
				})
			})
		}
	}
}

// A server that answers over the pool lives, also if no new connection can be made because the Sentinel
// that the dialer asks first is down, and if nobody has the slot of the key.
func TestHealthyServerIsAsked(t *testing.T) {
	refused := func(context.Context, string, string) (net.Conn, error) {
		return nil, fmt.Errorf("sentinel: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	}
	for name, dial := range map[string]func(context.Context, string, string) (net.Conn, error){
		"no Sentinel": refused,
		"no slot": dialed(func(asked int) string {
			return []string{decides(0), "-CLUSTERDOWN Hash slot not served\r\n"}[min(asked, 1)]
		}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServersOver(t, dial, but("lost"), trips.Config{Notify: stays(t)})
				_ = s.Do(t.Context(), &newLetter("a", "lost").Call)
				time.Sleep(time.Second)
			})
		})
	}
}

// Overload that follows a report within a second is not reported hours later.
func TestOverloadIsReportedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports atomic.Int64
		s := newServersOver(t, dialed(decides), but("lost"), trips.Config{Notify: func(_ context.Context, n trips.Notice) {
			if n.Kind == trips.Overloaded {
				reports.Add(1)
			}
		}})
		for range 2 {
			gatetest.Is(t, s.Do(t.Context(), &newLetter("a", "lost").Call), trips.ErrOverloaded, "got")
		}
		time.Sleep(time.Hour)
		gatetest.Equal(t, reports.Load(), 1, "reports")
		gatetest.Worked(t, s.Do(t.Context(), &newLetter("a", "heard").Call))
		time.Sleep(time.Second)
		gatetest.Equal(t, reports.Load(), 1, "reports")
	})
}

// Connections fall silent while the server answers on new ones. The calls that wait behind theirs go on
// as soon as a probe is answered. The calls on them end with their time, in a process that lags too.
func TestCallsPassSilentConnections(t *testing.T) {
	for name, lag := range map[string]func(*trips.Servers){
		"has CPU": func(*trips.Servers) {}, "lags": (*trips.Servers).Lag,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServersOver(t, dialed(decides), but("lost"), trips.Config{})
				lag(s)
				var callers sync.WaitGroup
				began := time.Now()
				for range 2 {
					callers.Go(func() {
						err := s.Do(t.Context(), &newLetter("a", "lost").Call)
						if took := time.Since(began); took > timeout || !errors.Is(err, trips.ErrOverloaded) {
							t.Errorf("a lost call after %v: %v", took, err)
						}
					})
					synctest.Wait()
				}
				time.Sleep(timeout / 4)
				gatetest.Worked(t, s.Do(t.Context(), &newLetter("a", "waits").Call))
				callers.Wait()
			})
		})
	}
}

// A connection is not silent in time in which the process did not run: no other call passes it.
func TestCallsPassNoUnreadConnections(t *testing.T) {
	const unread = 2 * timeout
	synctest.Test(t, func(t *testing.T) {
		s := newServersOver(t, dialed(decides), func(_ context.Context, cmds []redis.Cmder) error {
			if texts(cmds[0])[0] == "unread" {
				time.Sleep(unread)
			}
			answer(cmds[0])
			return nil
		}, trips.Config{})
		s.Starve(t, timeout*4/5)
		var callers sync.WaitGroup
		began := time.Now()
		for range 2 {
			callers.Go(func() { _ = s.Do(t.Context(), &newLetter("a", "unread").Call) })
			synctest.Wait()
		}
		gatetest.Worked(t, s.Do(t.Context(), &newLetter("a", "waits").Call))
		if took := time.Since(began); took < unread {
			t.Errorf("a call that waits is sent after %v", took)
		}
		callers.Wait()
	})
}

// A release waits for the acquire of its slot. It is sent when that is answered, although it is so late
// that other calls could pass it.
func TestReleaseFollowsLateAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServersOver(t, dialed(decides), func(_ context.Context, cmds []redis.Cmder) error {
			if texts(cmds[0])[0] == "late" {
				time.Sleep(10 * timeout)
			}
			answer(cmds[0])
			return nil
		}, trips.Config{})
		acquire, release := newLetter("a", "late"), newLetter("a", "release")
		acquire.Lane, acquire.Acquires = trips.Operations, "id"
		gatetest.Is(t, s.Do(t.Context(), &acquire.Call), trips.ErrOverloaded, "the acquire")
		release.Lane, release.Insists, release.Releases = trips.Operations, true, []string{"id"}
		release.Bound(t.Context(), time.Minute)
		gatetest.Worked(t, s.Do(t.Context(), &release.Call))
	})
}
