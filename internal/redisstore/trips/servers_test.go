package trips_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

// way is to a server that two round trips are on their way to. It notes those that follow.
type way struct {
	*trips.Servers
	held    chan struct{} // closed when the server goes on with the two
	callers sync.WaitGroup

	mu   sync.Mutex
	sent [][][]string // the texts of each command
	errs map[string]error
}

func newWay(t *testing.T, cluster bool, serve func(redis.Cmder)) *way {
	w := &way{held: make(chan struct{}), errs: make(map[string]error)}
	w.Servers = newServers(t, func(ctx context.Context, cmds []redis.Cmder) error {
		if texts(cmds[0])[0] == "held" {
			<-w.held
			return answers(ctx, cmds[0])
		}
		var trip [][]string
		for _, cmd := range cmds {
			trip = append(trip, texts(cmd))
			serve(cmd)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.sent = append(w.sent, trip)
		return nil
	}, cluster)
	for range 2 {
		w.callers.Go(func() { gatetest.Worked(t, w.Do(t.Context(), &newLetter("h", "held").Call)) })
		synctest.Wait()
	}
	return w
}

// ended notes the error of a letter's caller.
func (w *way) ended(t *testing.T, l *letter, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.errs[l.text] = err; err == nil && l.reply != int64(len(l.text)) {
		t.Errorf("the caller of %s got the reply %d", l.text, l.reply)
	}
}

// post sends letters with these texts while two round trips are in flight, lets the server go on,
// and returns the round trips that follow, and the errors. A text begins with the letter's kind.
func post(t *testing.T, serve func(redis.Cmder), letters ...string) ([][][]string, map[string]error) {
	w := newWay(t, false, serve)
	for _, text := range letters {
		w.callers.Go(func() {
			l := newLetter(text[:1], text)
			w.ended(t, l, w.Do(t.Context(), &l.Call))
		})
		synctest.Wait()
	}
	close(w.held)
	w.callers.Wait()
	w.mu.Lock() // a probe may follow a failure
	defer w.mu.Unlock()
	return slices.Clone(w.sent), w.errs
}

// past sends letters past two round trips in flight, as post does.
func past(
	t *testing.T, cluster bool, serve func(redis.Cmder), letters ...string,
) ([][][]string, map[string]error) {
	w := newWay(t, cluster, serve)
	var all []*letter
	var calls []*trips.Call
	for _, text := range letters {
		l := newLetter(text[:1], text)
		l.Insists, l.Lane, l.Weight = true, trips.Operations, trips.MaxOperationWeight
		all, calls = append(all, l), append(calls, &l.Call)
	}
	free := time.AfterFunc(timeout/4, func() { close(w.held) })
	errs := w.DoAll(deadline.Until(t.Context(), time.Now().Add(time.Second)), calls, false)
	if free.Stop() {
		close(w.held)
	}
	w.callers.Wait()
	for i, l := range all {
		w.ended(t, l, errs[i])
	}
	return w.sent, w.errs
}

func answers(_ context.Context, cmd redis.Cmder) error {
	answer(cmd)
	return nil
}

// Calls that are sent together share one round trip, and wait for none of those in flight. Their
// weights bound the scripts.
func TestDoAllWaitsForNoOtherCall(t *testing.T) {
	const want = "[[[a1 a2 a3 a4] [b1] [a5]]]"
	for _, cluster := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			sent, errs := past(t, cluster, answer, "a1", "b1", "a2", "a3", "a4", "a5")
			if took := time.Since(began); took > timeout/4 || fmt.Sprint(sent) != want {
				t.Errorf("sent %v after %v, want %s", sent, took, want)
			}
			gatetest.Worked(t, errors.Join(slices.Collect(maps.Values(errs))...))
		})
	}
}

// Calls that are sent together end with their time if the server says nothing. Those that failed
// because of another go again.
func TestDoAllEnds(t *testing.T) {
	for _, left := range []time.Duration{6 * time.Second, timeout} {
		synctest.Test(t, func(t *testing.T) {
			s := newServers(t, func(ctx context.Context, _ []redis.Cmder) error {
				<-ctx.Done()
				return ctx.Err()
			}, false)
			l := newLetter("a", "a")
			l.Insists, l.Lane = true, trips.Operations
			began := time.Now()
			err := s.DoAll(deadline.Until(t.Context(), began.Add(left)), []*trips.Call{&l.Call}, false)[0]
			if took := time.Since(began); took != left || err == nil {
				t.Errorf("after %v of %v: %v", took, left, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		_, errs := past(t, false, func(cmd redis.Cmder) {
			if answer(cmd); slices.Contains(texts(cmd), "a-bad") {
				cmd.SetErr(reply("WRONGTYPE Operation against a key holding the wrong kind of value"))
			}
		}, "a1", "a-bad", "a2")
		if errs["a1"] != nil || errs["a-bad"] == nil || errs["a2"] != nil {
			t.Errorf("errors %v", errs)
		}
	})
}

// In a process that is short of CPU too, calls that are sent together have their errors when they end.
func TestDoAllEndsInABusyProcess(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var over atomic.Bool
	defer over.Store(true)
	for range 4 {
		go func() {
			for !over.Load() {
			}
		}()
	}
	s := newServers(t, func(context.Context, []redis.Cmder) error {
		time.Sleep(4 * timeout)       // the client waits for longer than a call may
		return os.ErrDeadlineExceeded // of the client
	}, false)
	l := newLetter("a", "a")
	l.Insists, l.Lane = true, trips.Operations
	ctx := deadline.Until(t.Context(), time.Now().Add(time.Minute))
	gatetest.Fails(t, s.DoAll(ctx, []*trips.Call{&l.Call}, false)[0], "a call without an answer has no error")
}

// Calls that wait share a round trip, and a script if their parcels join.
func TestWaitingCallsShareARoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent, errs := post(t, answer, "a1", "b1", "a2", "b2")
		want := [][][]string{{{"a1", "a2"}, {"b1", "b2"}}}
		if fmt.Sprint(sent) != fmt.Sprint(want) {
			t.Errorf("sent %v, want %v", sent, want)
		}
		gatetest.Worked(t, errors.Join(slices.Collect(maps.Values(errs))...))
	})
}

// Operations have their share of a round trip also beside a call that is heavier than a batch.
func TestHeavyCallLeavesRoomForOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWay(t, false, answer)
		heavy, operation := newLetter("d", "d1"), newLetter("o", "o1")
		heavy.Weight = 5000
		operation.Lane = trips.Operations
		for _, l := range []*letter{heavy, operation} {
			w.callers.Go(func() { w.ended(t, l, w.Do(t.Context(), &l.Call)) })
			synctest.Wait()
		}
		close(w.held)
		w.callers.Wait()
		if got := fmt.Sprint(w.sent, w.errs); got != "[[[d1] [o1]]] map[d1:<nil> o1:<nil>]" {
			t.Errorf("sent %s", got)
		}
	})
}

// A script that the server does not know is sent once more, whole, and nothing else is.
func TestUnknownScriptIsSentWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		serve := func(cmd redis.Cmder) {
			if cmd.Name() == "evalsha" && texts(cmd)[0] == "b1" {
				cmd.SetErr(reply("NOSCRIPT No matching script. Please use EVAL."))
			} else {
				answer(cmd)
			}
		}
		sent, errs := post(t, serve, "a1", "b1")
		if want := "[[[a1] [b1]] [[b1]]]"; fmt.Sprint(sent) != want || errs["b1"] != nil {
			t.Errorf("sent %v, want %s; error %v", sent, want, errs["b1"])
		}
	})
}

// A script without an answer takes none from the others of its round trip, as of another shard of a Ring.
// No call is told that it was not sent because another was not.
func TestScriptWithoutAnAnswerFailsAlone(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for name, c := range map[string]struct {
		first  error // of the first script
		again  error // of the first script when it is sent whole
		second error
		unsent bool // the first call was not sent
	}{
		"refused":               {first: refused, unsent: true},
		"broken":                {first: io.ErrUnexpectedEOF},
		"unknown, then broken":  {first: reply("NOSCRIPT No matching script."), again: io.ErrUnexpectedEOF},
		"refused, other broken": {first: refused, second: io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, errs := post(t, func(cmd redis.Cmder) {
					err := c.second
					switch {
					case texts(cmd)[0] == "a1" && cmd.Name() == "eval":
						err = c.again
					case texts(cmd)[0] == "a1":
						err = c.first
					}
					if answer(cmd); err != nil {
						cmd.SetErr(err)
					}
				}, "a1", "b1")
				if errs["a1"] == nil || errors.As(errs["a1"], new(request.Unsent)) != c.unsent {
					t.Errorf("the first call: %v", errs["a1"])
				}
				if (errs["b1"] == nil) != (c.second == nil) || errors.As(errs["b1"], new(request.Unsent)) {
					t.Errorf("the second call: %v", errs["b1"])
				}
			})
		})
	}
}

// In a process that lags a lone call ends with its context and with the server, as everywhere. One
// whose context never ends may take as long as a round trip.
func TestLoneCallEndsInAProcessThatLags(t *testing.T) {
	const leaves = 2 * timeout
	for name, c := range map[string]struct {
		context func(context.Context) (context.Context, context.CancelFunc)
		want    time.Duration // at most
	}{
		"cancelled": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(leaves, cancel)
			return ctx, cancel
		}, leaves},
		"timed out": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, leaves)
		}, leaves},
		"circuit opened": {context.WithCancel, 2*timeout + 250*time.Millisecond},
		"never ends": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithoutCancel(ctx), func() {}
		}, deadline.Patience(timeout)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServers(t, func(ctx context.Context, cmds []redis.Cmder) error {
					if texts(cmds[0])[0] != "first" {
						<-ctx.Done()
						return ctx.Err()
					}
					answer(cmds[0])
					return nil
				}, false)
				gatetest.NoError(t, s.Do(t.Context(), &newLetter("a", "first").Call))
				s.Lag()
				ctx, cancel := c.context(t.Context())
				defer cancel()
				began := time.Now()
				err := s.Do(ctx, &newLetter("a", "lost").Call)
				if took := time.Since(began); err == nil || took > c.want {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}

// A server of a cluster that another has replaced is not watched any more, although a call that was
// in flight doubts it afterwards.
func TestReplacedServerIsNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var replaced atomic.Bool
		late, closed := make(chan struct{}), make(chan struct{}, 1)
		s := newCluster(t, func() []redis.ClusterSlot {
			if replaced.Load() {
				return []redis.ClusterSlot{master("127.0.0.1:2", 0, 16383)}
			}
			return []redis.ClusterSlot{master("127.0.0.1:1", 0, 16383)}
		}, func(_ context.Context, cmds []redis.Cmder) error {
			if texts(cmds[0])[0] == "late" {
				<-late
			}
			return errDown
		}, trips.Config{Notify: func(_ context.Context, n trips.Notice) {
			if n.Kind == trips.Closed {
				closed <- struct{}{}
			}
			replaced.Store(true)
		}})
		var caller sync.WaitGroup
		caller.Go(func() { _ = s.Do(t.Context(), &newLetter("a", "late").Call) })
		_ = s.Do(t.Context(), &newLetter("a", "first").Call)
		<-closed
		time.Sleep(breaker.Pause) // in which nothing is doubted
		close(late)
		caller.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		gatetest.Worked(t, s.Tasks.Wait(ctx))
	})
}
