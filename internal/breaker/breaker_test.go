package breaker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// prober is a probe whose answer the test decides.
type prober struct {
	running, most, total atomic.Int64
	fail                 atomic.Bool
	hold                 chan struct{} // closed when probes may answer
}

func (p *prober) probe(ctx context.Context) error {
	if n := p.running.Add(1); n > p.most.Load() {
		p.most.Store(n)
	}
	defer p.running.Add(-1)
	p.total.Add(1)
	if p.hold != nil {
		select {
		case <-p.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if p.fail.Load() {
		return errors.New("still down")
	}
	return nil
}

func attempt(t *testing.T, c *Breaker, failed bool) {
	t.Helper()
	if err := c.Enter(); err != nil {
		t.Fatalf("enter: %v", err)
	}
	if failed {
		c.Fail()
	} else {
		c.Succeed()
	}
}

func TestCircuitOpensAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(prober)
		p.fail.Store(true)
		c := New(10, time.Second, new(Tasks), p.probe)
		// A success in between restarts the count of failures.
		for range 5 {
			attempt(t, c, true)
			attempt(t, c, true)
			attempt(t, c, false)
		}
		for range threshold {
			attempt(t, c, true)
		}
		rejected := func() {
			t.Helper()
			if err := c.Enter(); !errors.Is(err, ErrOpen) {
				t.Fatalf("enter: %v", err)
			}
		}
		rejected()
		time.Sleep(Pause - 1)
		rejected()
		synctest.Wait()
		if n := p.total.Load(); n != 0 {
			t.Errorf("%d probes before the pause was over", n)
		}
		// The first caller after the pause starts the probe, and does not wait for it.
		time.Sleep(time.Nanosecond)
		for range 3 {
			rejected()
		}
		synctest.Wait()
		if n := p.total.Load(); n != 1 {
			t.Errorf("%d probes, want 1", n)
		}
		rejected()
		synctest.Wait()
		if n := p.total.Load(); n != 1 {
			t.Errorf("%d probes within the pause after one that failed", n)
		}
		p.fail.Store(false)
		time.Sleep(Pause)
		rejected()
		synctest.Wait()
		attempt(t, c, false)
		if n := c.inFlight.Load(); n != 0 {
			t.Errorf("%d in flight", n)
		}
		// Opening again takes as many failures in a row.
		attempt(t, c, true)
		attempt(t, c, true)
		attempt(t, c, false)
	})
}

func TestCircuitProbesOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &prober{hold: make(chan struct{})}
		c := New(1000, time.Second, new(Tasks), p.probe)
		for range threshold {
			attempt(t, c, true)
		}
		time.Sleep(Pause)
		for range 100 {
			go func() { _ = c.Enter() }()
		}
		synctest.Wait()
		time.Sleep(Pause) // no second probe joins a slow one
		for range 100 {
			go func() { _ = c.Enter() }()
		}
		synctest.Wait()
		if p.running.Load() != 1 || p.total.Load() != 1 {
			t.Errorf("%d of %d probes are running", p.running.Load(), p.total.Load())
		}
		// A probe without an answer ends at its timeout, and the next one starts after a pause.
		time.Sleep(time.Second)
		synctest.Wait()
		if p.running.Load() != 0 {
			t.Error("the probe has no timeout")
		}
		time.Sleep(Pause)
		_ = c.Enter()
		close(p.hold)
		synctest.Wait()
		if p.total.Load() != 2 || p.most.Load() != 1 {
			t.Errorf("%d probes, %d at a time", p.total.Load(), p.most.Load())
		}
		attempt(t, c, false)
	})
}

func TestCircuitCountsCallsInFlight(t *testing.T) {
	c := New(2, time.Second, new(Tasks), nil)
	for range 3 {
		for range 2 {
			if err := c.Enter(); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 { // rejected calls do not count
			if err := c.Enter(); !errors.Is(err, ErrBusy) {
				t.Fatalf("enter: %v", err)
			}
		}
		c.Abandon()
		if err := c.Enter(); err != nil {
			t.Fatal(err)
		}
		c.Fail()
		c.Succeed()
		if n := c.inFlight.Load(); n != 0 {
			t.Fatalf("%d in flight", n)
		}
	}
	// An abandoned call is neither a failure nor a success.
	attempt(t, c, true)
	attempt(t, c, true)
	for range 5 {
		if err := c.Enter(); err != nil {
			t.Fatal(err)
		}
		c.Abandon()
	}
	if n := c.failures.Load(); n != 2 {
		t.Errorf("%d failures in a row", n)
	}
}

// A late success does not close a circuit that opened in the meantime.
func TestLateSuccessLeavesCircuitOpen(t *testing.T) {
	c := New(10, time.Second, new(Tasks), nil)
	if err := c.Enter(); err != nil {
		t.Fatal(err)
	}
	for range threshold {
		attempt(t, c, true)
	}
	c.Succeed()
	if err := c.Enter(); !errors.Is(err, ErrOpen) {
		t.Errorf("enter: %v", err)
	}
}

func TestTasksWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tasks := new(Tasks)
		if err := tasks.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		hold := make(chan struct{})
		tasks.Go(func() { <-hold })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := tasks.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
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
		if waited.Load() != 2 {
			t.Errorf("%d waits ended", waited.Load())
		}
	})
}
