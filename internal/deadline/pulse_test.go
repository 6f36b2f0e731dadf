package deadline_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/gatetest"
)

// A Pulse beats while somebody holds it.
func TestPulseBeatsWhileHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var beats atomic.Int64
		p := &deadline.Pulse{Every: 10 * time.Millisecond, Look: func(time.Duration) { beats.Add(1) }}
		expect := func(after time.Duration, want int64) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			gatetest.Equal(t, beats.Load(), want, "beats")
		}
		expect(time.Second, 0)
		p.Hold()
		p.Hold()
		expect(95*time.Millisecond, 9)
		p.Drop()
		expect(100*time.Millisecond, 19)
		p.Drop()
		expect(time.Second, 20)
	})
}

// While a beat is late, and after it, a Pulse tells by how much. It tells of nothing that is little, and
// of no time twice.
func TestPulseTellsByHowMuchABeatIsLate(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		var stands atomic.Int64 // for how long the next beat does
		told := make(chan time.Duration, 100)
		p := &deadline.Pulse{
			Every: 10 * ms,
			Fired: func() { time.Sleep(time.Duration(stands.Swap(0))) },
			Look:  func(late time.Duration) { told <- late },
		}
		began := time.Now()
		expect := func(at, want time.Duration) {
			t.Helper()
			time.Sleep(time.Until(began.Add(at)))
			if lost := p.Lost(); lost != want {
				t.Errorf("%v after %v, want %v", lost, at, want)
			}
		}
		stands.Store(int64(45 * ms))
		p.Hold()
		expect(9*ms, 0)
		expect(13*ms, 0)
		expect(14*ms, 4*ms)
		expect(30*ms, 20*ms)
		expect(54*ms, 44*ms)
		expect(56*ms, 45*ms)
		expect(75*ms, 45*ms)
		p.Drop()
		expect(100*ms, 45*ms)
		if first, second := <-told, <-told; first != 45*ms || second != 0 {
			t.Errorf("the beats are late by %v and %v", first, second)
		}
		stands.Store(int64(30 * ms))
		p.Hold()
		defer p.Drop()
		expect(135*ms, 70*ms)
		expect(185*ms, 75*ms)
	})
}

// After a beat that was late for long, a Pulse that is held beats as before.
func TestPulseBeatsOnAfterALateBeat(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		var stands atomic.Int64 // for how long the next beat does
		began, beats := time.Now(), make(chan time.Duration, 100)
		p := &deadline.Pulse{
			Every: 10 * ms,
			Fired: func() { time.Sleep(time.Duration(stands.Swap(0))) },
			Look:  func(time.Duration) { beats <- time.Since(began) },
		}
		stands.Store(int64(25 * ms))
		p.Hold()
		defer p.Drop()
		if first, second := <-beats, <-beats; first != 35*ms || second != 45*ms {
			t.Errorf("beats after %v and %v", first, second)
		}
	})
}

// A Pulse tells for how long other goroutines kept this process busy, and a context ends later by
// that.
func TestPulseTellsOfABusyProcess(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	p := &deadline.Pulse{Every: 10 * time.Millisecond}
	p.Hold()
	defer p.Drop()
	var over atomic.Bool
	defer over.Store(true)
	for range 8 {
		go func() {
			for !over.Load() {
			}
		}()
	}
	began, before := time.Now(), p.Lost()
	ctx, cancel := p.Within(t.Context(), 50*time.Millisecond, time.Second)
	defer cancel()
	lost := time.Duration(0)
	for ctx.Err() == nil {
		last := lost
		if lost = p.Lost() - before; lost < last || lost > time.Since(began) {
			t.Fatalf("the process did not run for %v of %v, after %v", lost, time.Since(began), last)
		}
		runtime.Gosched()
	}
	if took := time.Since(began); lost < 10*time.Millisecond || took < lost {
		t.Errorf("the process did not run for %v of %v", lost, took)
	}
	gatetest.Is(t, ctx.Err(), context.DeadlineExceeded, "got")
}

// A context within the running time ends when that is over, with its parent, and at the most.
func TestWithinEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &deadline.Pulse{Every: 10 * time.Millisecond}
		began := time.Now()
		due, stop := p.Within(t.Context(), 55*time.Millisecond, time.Second)
		defer stop()
		<-due.Done()
		gatetest.Is(t, due.Err(), context.DeadlineExceeded, "got")
		gatetest.Equal(t, time.Since(began), 55*time.Millisecond, "it ended after")
		gatetest.Equal(t, p.Lost(), 0, "of a process that runs")
		parent, leave := context.WithCancel(t.Context())
		ctx, cancel := p.Within(parent, time.Hour, time.Second)
		defer cancel()
		if at, ok := ctx.Deadline(); !ok || time.Until(at) != time.Hour+time.Second {
			t.Error(at, ok)
		}
		leave()
		if <-ctx.Done(); !errors.Is(ctx.Err(), context.Canceled) {
			t.Error(ctx.Err())
		}
	})
}

func TestDetachedContextsShareDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 80 * time.Millisecond
		d := new(deadline.Deadlines)
		first := d.Detach(t.Context(), time.Now(), timeout)
		time.Sleep(10 * time.Millisecond)
		second := d.Detach(t.Context(), time.Now(), timeout)
		time.Sleep(time.Nanosecond)
		third := d.Detach(t.Context(), time.Now(), timeout)
		if first.Done() != second.Done() || first.Done() == third.Done() {
			t.Error("contexts within an eighth of the timeout share a deadline, and no others do")
		}
		time.Sleep(70 * time.Millisecond)
		synctest.Wait()
		if first.Err() == nil || second.Err() == nil || third.Err() != nil {
			t.Errorf("after the first deadline: %v, %v, %v", first.Err(), second.Err(), third.Err())
		}
		<-third.Done()
	})
}

// A command that was sent is waited for, even if its caller has gone.
func TestDetachKeepsTheValuesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(deadline.Deadlines)
		caller, cancel := context.WithTimeout(context.WithValue(t.Context(), d, "value"), time.Millisecond)
		ctx := d.Detach(caller, time.Now(), time.Second)
		cancel()
		at, ok := ctx.Deadline()
		if ctx.Err() != nil || ctx.Value(d) != "value" || !ok || time.Until(at) != time.Second {
			t.Errorf("error %v, value %v, ends in %v", ctx.Err(), ctx.Value(d), time.Until(at))
		}
		<-ctx.Done()
	})
}

func TestUntilTakesTheEarlierDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		caller, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for at, want := range map[time.Duration]time.Duration{
			time.Millisecond: time.Millisecond, time.Minute: time.Second,
		} {
			ctx := deadline.Until(caller, now.Add(at))
			if got, ok := ctx.Deadline(); !ok || got.Sub(now) != want || ctx.Done() != caller.Done() {
				t.Errorf("until %v: %v", at, got.Sub(now))
			}
			if _, ok := deadline.Untimed(ctx); ok != (at < time.Second) {
				t.Errorf("until %v: untimed %v", at, ok)
			}
		}
	})
}

func TestErrSeesALateTimer(t *testing.T) {
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	gatetest.Is(t, deadline.Err(ctx), context.DeadlineExceeded, "error")
	for name, ctx := range map[string]context.Context{
		"without a deadline": context.Background(),
		"with one of Until":  deadline.Until(context.Background(), time.Now().Add(-time.Second)),
	} {
		if err := deadline.Err(ctx); err != nil {
			t.Errorf("error %v %s", err, name)
		}
	}
}
