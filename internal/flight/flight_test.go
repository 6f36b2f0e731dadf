package flight_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/flight"
	"github.com/headgate/headgate/internal/gatetest"
)

var (
	errFailed = errors.New("failed")
	errClosed = errors.New("closed")
)

const (
	long  = 100 * time.Millisecond
	pause = time.Second
)

// rig is a Group, and what is called in it.
type rig struct {
	*flight.Group
	tasks *breaker.Tasks
}

func newRig() *rig {
	r := &rig{tasks: breaker.NewTasks()}
	r.Group = flight.New(flight.Config{
		Tasks: r.tasks, Long: long, Turn: 10 * time.Second, Pause: pause, Failed: errFailed, Closed: errClosed,
	})
	return r
}

// await waits for a call for at most a minute.
func (r *rig) await(t *testing.T, c *flight.Call) error {
	t.Helper()
	return r.Wait(t.Context(), []*flight.Call{c}, time.Now().Add(time.Minute), 0)[0]
}

func (r *rig) end(t *testing.T) {
	r.Close()
	gatetest.Worked(t, r.tasks.Wait(t.Context()))
}

func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func quick(context.Context) error { return nil }

// A failure is the outcome for its key for a while, whatever its kind. Other errors are not.
func TestFailureCountsForAWhile(t *testing.T) {
	for name, test := range map[string]struct {
		fail  func(context.Context) error
		again time.Duration // when the next caller calls
	}{
		"an error of that kind": {func(context.Context) error { return fmt.Errorf("%w: gone", errFailed) }, pause},
		"another error":         {func(context.Context) error { return errors.New("Redis fails") }, 0},
		"a panic":               {func(context.Context) error { panic("hook") }, pause},
		"runtime.Goexit":        {func(context.Context) error { runtime.Goexit(); return nil }, pause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig()
				defer r.end(t)
				call := func(f func(context.Context) error) error { return r.await(t, r.Call(t.Context(), "a", "k", f)) }
				if err := call(test.fail); err == nil || errors.Is(err, errFailed) != (test.again > 0) {
					t.Error(err)
				}
				if err := call(quick); (err != nil) != (test.again > 0) {
					t.Error(err)
				}
				time.Sleep(test.again)
				synctest.Wait()
				gatetest.Worked(t, call(quick))
			})
		})
	}
}

// The calls of an owner are bounded, those that hang included. Beyond that they wait for their turn.
func TestCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		var mu sync.Mutex
		running, most := 0, 0
		var calls []*flight.Call
		for i := range 400 {
			calls = append(calls, r.Call(t.Context(), "a", fmt.Sprint(i), func(ctx context.Context) error {
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				return hang(ctx)
			}))
		}
		time.Sleep(5 * time.Second)
		mu.Lock()
		gatetest.Equal(t, most, 32+256, "calls ran at a time")
		mu.Unlock()
		time.Sleep(6 * time.Second)
		gatetest.Is(t, r.await(t, calls[399]), errFailed, "the call without a turn")
		last := r.Call(t.Context(), "a", "last", quick)
		r.end(t)
		gatetest.Is(t, r.await(t, last), errClosed, "the call that waited when the Group was closed")
	})
}

// A caller leaves when its own context or its time ends. The call goes on.
func TestCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		defer r.end(t)
		done := make(chan struct{})
		c := r.Call(t.Context(), "a", "k", func(context.Context) error {
			<-done
			return nil
		})
		began := time.Now()
		fine := r.Call(t.Context(), "a", "fine", quick)
		errs := r.Wait(t.Context(), []*flight.Call{c, fine}, began.Add(long), time.Second)
		if took := time.Since(began); !errors.Is(errs[0], errFailed) || errs[1] != nil || took != long {
			t.Errorf("%v after %v", errs, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		gatetest.Is(t, r.Wait(ctx, []*flight.Call{c}, began.Add(time.Hour), 0)[0], context.DeadlineExceeded, "got")
		close(done)
		gatetest.Worked(t, r.await(t, c))
	})
}
