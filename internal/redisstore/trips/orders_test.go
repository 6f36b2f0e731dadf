package trips_test

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

// A server that answers one script of a round trip in time, and the next one not, is no outage.
func TestTimeoutBetweenTwoAnswersIsOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, errs := post(t, func(cmd redis.Cmder) {
			time.Sleep(time.Millisecond)
			if answer(cmd); texts(cmd)[0] == "b1" {
				cmd.SetErr(os.ErrDeadlineExceeded)
			}
		}, "a1", "b1")
		gatetest.NoError(t, errs["a1"])
		gatetest.Is(t, errs["b1"], trips.ErrOverloaded, "the second script")
	})
}

// An answer that arrives as the time of its call ends is one, or is late. The call is used again only if
// nothing holds it.
func TestAnswerAtTheDeadline(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			s := newServers(t, func(ctx context.Context, cmds []redis.Cmder) error {
				time.Sleep(timeout * 7 / 8) // whose beat ends the call
				return answers(ctx, cmds[0])
			}, false)
			l := newLetter("a", "text")
			err := s.Do(t.Context(), &l.Call)
			if again := l.Reset(); again != (err == nil) || again && l.reply != 4 {
				t.Errorf("error %v of a call to be used again: %v", err, again)
			}
		})
	}
}

// A call that is answered as its round trip ends has the reply, or an error, also of a client that heeds
// no deadline.
func TestAnswerAsTheRoundTripEnds(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DisableIdentity: true})
			s := serversOf(t, client, func(ctx context.Context, cmds []redis.Cmder) error {
				end, _ := ctx.Deadline()
				time.Sleep(time.Until(end))
				answer(cmds[0])
				return nil
			}, trips.Config{})
			l := newLetter("a", "text")
			l.End, l.Insists = time.Now().Add(time.Hour), true
			if err := s.Do(t.Context(), &l.Call); (err == nil) != (l.reply == 4) {
				t.Fatalf("reply %d, %v", l.reply, err)
			}
		})
	}
}

// A caller that leaves as its batch is taken is not told that its call was not sent.
func TestCallerLeavesAsItsBatchIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		sent := false
		s := newServers(t, func(_ context.Context, cmds []redis.Cmder) error {
			sent = true
			return answers(ctx, cmds[0])
		}, false)
		l := newLetter("a", "text")
		l.packed = func() {
			leave()
			for range 100 {
				runtime.Gosched()
			}
		}
		err := s.Do(ctx, &l.Call)
		synctest.Wait()
		if !sent || err != nil && (!errors.Is(err, context.Canceled) || errors.As(err, new(request.Unsent))) {
			t.Errorf("sent %v: %v", sent, err)
		}
	})
}

// A circuit closes when a call that insists is answered, although the probe that was on its way was not.
func TestCircuitClosesAsAProbeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changed := make(chan time.Time, 10)
		greets := func(asked int) string { return []string{decides(0), ""}[min(asked, 1)] }
		s := newServersOver(t, dialed(greets), func(ctx context.Context, cmds []redis.Cmder) error {
			if texts(cmds[0])[0] == "insists" {
				return answers(ctx, cmds[0])
			}
			<-ctx.Done()
			return ctx.Err()
		}, trips.Config{Notify: func(context.Context, trips.Notice) { changed <- time.Now() }})
		_ = s.Do(t.Context(), &newLetter("a", "lost").Call)
		<-changed
		gatetest.Is(t, s.Do(t.Context(), &newLetter("a", "open").Call), trips.ErrOpen, "got")
		time.Sleep(breaker.Pause + timeout/2) // the next probe has asked
		l, began := newLetter("a", "insists"), time.Now()
		l.Insists = true
		gatetest.Worked(t, s.Do(t.Context(), &l.Call))
		if took := (<-changed).Sub(began); took > 2*breaker.Pause {
			t.Errorf("the circuit closed after %v, by another probe", took)
		}
	})
}

// What a server sends elsewhere until its caller leaves, or until its time ends, was not run.
func TestCallThatMovesUntilItEndsWasNotRun(t *testing.T) {
	for name, left := range map[string]time.Duration{"caller leaves": timeout / 2, "time ends": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServersOver(t, dialed(decides), func(_ context.Context, cmds []redis.Cmder) error {
					cmds[0].SetErr(reply("TRYAGAIN Multiple keys request during rehashing of slot"))
					return nil
				}, trips.Config{})
				ctx, cancel := context.WithTimeout(t.Context(), left)
				defer cancel()
				err := s.Do(ctx, &newLetter("a", "moves").Call)
				if !errors.As(err, new(request.Unsent)) {
					t.Errorf("%T: %v", err, err)
				}
			})
		})
	}
}

// newCluster returns the Servers of a cluster whose masters have the slots from 0 on, up to the ends.
// The hook answers their scripts, and the dialer the probes.
func newCluster(
	t *testing.T, slots func() []redis.ClusterSlot, h hook, cfg trips.Config,
) *trips.Servers {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ContextTimeoutEnabled: true, DialerRetries: 1,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return slots(), nil },
		Dialer:       func(context.Context, string, string) (net.Conn, error) { return nil, errDown },
	})
	t.Cleanup(func() { time.Sleep(time.Second) }) // in a bubble: the closed client reloads its slots
	cfg.Cluster = true
	return serversOf(t, client, h, cfg)
}

var errDown = errors.New("down")

func master(addr string, from, to int) redis.ClusterSlot {
	return redis.ClusterSlot{Start: from, End: to, Nodes: []redis.ClusterNode{{Addr: addr}}}
}

// A slot moves away from a server that is down. Its keys are decided by the other server, and those of
// the slots that stay are not asked for.
func TestSlotMovesDuringOutage(t *testing.T) {
	const down, up = "127.0.0.1:1", "127.0.0.1:2"
	synctest.Test(t, func(t *testing.T) {
		var moved atomic.Bool
		s := newCluster(t, func() []redis.ClusterSlot {
			if moved.Load() {
				return []redis.ClusterSlot{master(down, 0, 8191), master(up, 8192, 16383)}
			}
			return []redis.ClusterSlot{master(down, 0, 16383)}
		}, func(ctx context.Context, cmds []redis.Cmder) error {
			if moved.Load() && texts(cmds[0])[0] == "moves" {
				return answers(ctx, cmds[0])
			}
			return errDown
		}, trips.Config{})
		ask := func(kind, text string) error { return s.Do(t.Context(), &newLetter(kind, text).Call) }
		gatetest.Is(t, ask("a", "moves"), errDown, "got")
		time.Sleep(breaker.Pause)
		gatetest.Is(t, ask("b", "stays"), trips.ErrOpen, "got")
		moved.Store(true)
		time.Sleep(4 * breaker.Pause)
		gatetest.NoError(t, ask("a", "moves"))
		gatetest.Is(t, ask("b", "stays"), errDown, "got")
		time.Sleep(breaker.Pause)
		gatetest.Is(t, ask("b", "stays"), trips.ErrOpen, "got")
		gatetest.NoError(t, ask("a", "moves"))
	})
}
