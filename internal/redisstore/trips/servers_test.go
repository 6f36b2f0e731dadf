package trips_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

// rejection is an error reply of Redis.
type rejection string

func (r rejection) Error() string { return string(r) }
func (rejection) RedisError()     {}

// post sends letters with these texts while two round trips are in flight, lets the server go on,
// and returns the round trips that follow: the texts of each command. A text begins with the
// letter's kind.
func post(
	t *testing.T, serve func(redis.Cmder), letters ...string,
) ([][][]string, map[string]error) {
	var mu sync.Mutex
	var sent [][][]string
	held := make(chan struct{})
	s := newServers(t, func(_ context.Context, cmds []redis.Cmder) error {
		if texts(cmds[0])[0] == "held" {
			<-held
			answer(cmds[0])
			return nil
		}
		var trip [][]string
		for _, cmd := range cmds {
			trip = append(trip, texts(cmd))
			serve(cmd)
		}
		mu.Lock()
		sent = append(sent, trip)
		mu.Unlock()
		return nil
	}, false)
	errs := make(map[string]error)
	var callers sync.WaitGroup
	for _, text := range append([]string{"held", "held"}, letters...) {
		callers.Go(func() {
			l := newLetter(text[:1], text)
			err := s.Do(t.Context(), &l.Call)
			mu.Lock()
			defer mu.Unlock()
			if errs[text] = err; err == nil && l.reply != int64(len(text)) {
				t.Errorf("the caller of %s got the reply %d", text, l.reply)
			}
		})
		synctest.Wait()
	}
	close(held)
	callers.Wait()
	mu.Lock() // a probe may follow a failure
	defer mu.Unlock()
	return slices.Clone(sent), errs
}

// Calls that wait share a round trip, and a script if their parcels join.
func TestWaitingCallsShareARoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent, errs := post(t, answer, "a1", "b1", "a2", "b2")
		want := [][][]string{{{"a1", "a2"}, {"b1", "b2"}}}
		if fmt.Sprint(sent) != fmt.Sprint(want) {
			t.Errorf("sent %v, want %v", sent, want)
		}
		for text, err := range errs {
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
	})
}

// A script that fails for one of its calls is split: only that call fails.
func TestFailureOfOneCallSplitsItsScript(t *testing.T) {
	for _, failure := range []string{
		"WRONGTYPE Operation against a key holding the wrong kind of value",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"ERR user_script:1: attempt to compare nil with number",
	} {
		t.Run(failure, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				serve := func(cmd redis.Cmder) {
					if slices.Contains(texts(cmd), "a-bad") {
						cmd.SetErr(rejection(failure))
					} else {
						answer(cmd)
					}
				}
				_, errs := post(t, serve, "a1", "a-bad", "a2")
				for text, err := range errs {
					failed := err != nil && strings.Contains(err.Error(), failure)
					if failed != (text == "a-bad") {
						t.Errorf("%s: %v", text, err)
					}
				}
			})
		})
	}
}

// A script that the server does not know is sent once more, whole, and nothing else is.
func TestUnknownScriptIsSentWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		serve := func(cmd redis.Cmder) {
			if cmd.Name() == "evalsha" && texts(cmd)[0] == "b1" {
				cmd.SetErr(rejection("NOSCRIPT No matching script. Please use EVAL."))
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

// A call that waits is never sent after its caller has left, and its error says so.
func TestCallerLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sent []string
		held := make(chan struct{})
		s := newServers(t, func(_ context.Context, cmds []redis.Cmder) error {
			<-held
			mu.Lock()
			defer mu.Unlock()
			for _, cmd := range cmds {
				sent = append(sent, texts(cmd)...)
				answer(cmd)
			}
			return nil
		}, false)
		ctx, leave := context.WithCancel(t.Context())
		errs := make(chan error, 3)
		for _, text := range []string{"first", "second", "waiter"} {
			go func() { errs <- s.Do(ctx, &newLetter("a", text).Call) }()
			synctest.Wait()
		}
		leave()
		unsent := 0
		for range 3 {
			if errors.As(<-errs, new(request.Unsent)) {
				unsent++
			}
		}
		close(held)
		synctest.Wait()
		if slices.Sort(sent); unsent != 1 || !slices.Equal(sent, []string{"first", "second"}) {
			t.Errorf("%d calls were never sent, and %v were", unsent, sent)
		}
	})
}

// A server of a cluster that another has replaced is not watched any more, although a call that was
// in flight doubts it afterwards.
func TestReplacedServerIsNotWatched(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	addr := "127.0.0.1:1"
	late := make(chan struct{})
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ContextTimeoutEnabled: true,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			mu.Lock()
			defer mu.Unlock()
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
		},
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("down")
		},
	})
	defer client.Close()
	client.AddHook(hook(func(_ context.Context, cmds []redis.Cmder) error {
		if texts(cmds[0])[0] == "late" {
			<-late
		}
		return errors.New("down")
	}))
	tasks := new(breaker.Tasks)
	defer tasks.Stop()
	closed := make(chan struct{}, 1)
	s := trips.New(trips.Config{
		Client: client, Cluster: true, Timeout: time.Minute, Tasks: tasks,
		Probe: func(string) trips.Parcel { return newLetter("probe", "?") },
		Notify: func(_ context.Context, n trips.Notice) {
			switch n.Kind {
			case trips.Opened:
				mu.Lock()
				addr = "127.0.0.1:2"
				mu.Unlock()
			case trips.Closed:
				closed <- struct{}{}
			}
		},
	})
	var caller sync.WaitGroup
	caller.Go(func() { _ = s.Do(t.Context(), &newLetter("a", "late").Call) })
	_ = s.Do(t.Context(), &newLetter("a", "first").Call)
	<-closed
	close(late)
	caller.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := tasks.Wait(ctx); err != nil {
		t.Error(err)
	}
}
