package breaker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/gatetest"
)

var errDown = errors.New("still down")

const soon = 25 * time.Millisecond // for how long a success counts

// server is what a probe asks. The test decides its answer.
type server struct {
	running, most, total atomic.Int64
	down                 atomic.Bool
	hold                 chan struct{} // closed when probes may answer
	changes              []error
	forgotten, stopped   bool
}

func (s *server) probe(context.Context) error {
	if n := s.running.Add(1); n > s.most.Load() {
		s.most.Store(n)
	}
	defer s.running.Add(-1)
	s.total.Add(1)
	if s.hold != nil {
		<-s.hold
	}
	if s.down.Load() {
		return errDown
	}
	return nil
}

func (s *server) stop() { s.stopped = true }

func (s *server) probed(fault error, changed bool) bool {
	if changed {
		s.changes = append(s.changes, fault)
	}
	return !s.forgotten
}

// newBreaker returns a breaker, and its tasks, which the test stops.
func newBreaker(t *testing.T, s *server) *breaker.Breaker {
	tasks := breaker.NewTasks()
	t.Cleanup(tasks.Stop)
	return breaker.New(breaker.Config{Probe: s.probe, Probed: s.probed, Stopped: s.stop, Soon: soon, Tasks: tasks})
}

// However many calls have no answer, a server that answers the probe is asked.
func TestDoubtsAloneOpenNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(server)
		b := newBreaker(t, s)
		for range 1000 {
			b.Doubt()
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if b.IsOpen() || len(s.changes) > 0 {
			t.Errorf("it opened: %v", s.changes)
		}
		if n, most := s.total.Load(), int64(time.Second/soon); n > most || n < most/2 {
			t.Errorf("%d probes in a second, want at most %d", n, most)
		}
	})
}

func TestOpensAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(server)
		s.down.Store(true)
		b := newBreaker(t, s)
		if b.IsOpen() {
			t.Error("it is open from the start")
		}
		b.Doubt()
		synctest.Wait()
		if !b.IsOpen() || s.total.Load() != 1 {
			t.Fatalf("one failed probe has not opened it, %d probes", s.total.Load())
		}
		time.Sleep(5 * breaker.Pause / 2)
		b.Doubt() // a probe is due anyway
		synctest.Wait()
		if n := s.total.Load(); n != 3 || len(s.changes) != 1 {
			t.Errorf("%d probes after two pauses, changes %v", n, s.changes)
		}
		s.down.Store(false)
		time.Sleep(breaker.Pause)
		synctest.Wait()
		if b.IsOpen() || len(s.changes) != 2 || !errors.Is(s.changes[0], errDown) || s.changes[1] != nil {
			t.Errorf("changes %v", s.changes)
		}
	})
}

// Probing ends when another server takes the place of one that fails, and when the tasks are stopped.
func TestProbingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{forgotten: true}
		s.down.Store(true)
		forgotten := newBreaker(t, s)
		forgotten.Doubt()
		time.Sleep(10 * breaker.Pause)
		gatetest.Equal(t, s.total.Load(), 1, "probes of a server that nobody asks")
		s = new(server)
		s.down.Store(true)
		tasks := breaker.NewTasks()
		stopped := breaker.New(breaker.Config{Probe: s.probe, Probed: s.probed, Stopped: s.stop, Soon: soon, Tasks: tasks})
		stopped.Doubt()
		time.Sleep(breaker.Pause / 2)
		tasks.Stop()
		gatetest.Worked(t, tasks.Wait(t.Context()))
		if tasks.Sleep(time.Hour) || !s.stopped {
			t.Error("a stopped task slept")
		}
	})
}

func TestProbesOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{hold: make(chan struct{})}
		b := newBreaker(t, s)
		for range 100 {
			go b.Doubt()
		}
		synctest.Wait()
		time.Sleep(2 * breaker.Pause) // no second probe joins a slow one
		for range 100 {
			go b.Doubt()
		}
		synctest.Wait()
		if s.running.Load() != 1 || s.total.Load() != 1 {
			t.Errorf("%d of %d probes are running", s.running.Load(), s.total.Load())
		}
		close(s.hold)
		synctest.Wait()
		time.Sleep(breaker.Pause)
		b.Doubt()
		synctest.Wait()
		if s.total.Load() != 2 || s.most.Load() != 1 {
			t.Errorf("%d probes, %d at a time", s.total.Load(), s.most.Load())
		}
	})
}

func TestTasksWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tasks := breaker.NewTasks()
		gatetest.Worked(t, tasks.Wait(t.Context()))
		hold := make(chan struct{})
		tasks.Go(func() { <-hold })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		gatetest.Is(t, tasks.Wait(ctx), context.DeadlineExceeded, "got")
		var waited atomic.Int64
		for range 2 {
			go func() {
				if tasks.Wait(context.Background()) == nil {
					waited.Add(1)
				}
			}()
		}
		synctest.Wait()
		tasks.Go(func() { <-hold }) // starts while two callers wait
		close(hold)
		synctest.Wait()
		gatetest.Equal(t, waited.Load(), 2, "waits ended")
	})
}
