package deadline_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/deadline"
)

func TestBoundSharesDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expired := make(chan *deadline.Shared, 2)
		d := &deadline.Deadlines{Timeout: 80 * time.Millisecond, Expire: func(s *deadline.Shared) {
			if !s.Passed() {
				t.Error("a deadline was reported before it had passed")
			}
			expired <- s
		}}
		first, _ := d.Bound(t.Context())
		time.Sleep(10 * time.Millisecond)
		second, _ := d.Bound(t.Context())
		time.Sleep(time.Nanosecond)
		third, _ := d.Bound(t.Context())
		shared := deadline.SharedOf(first)
		if shared == nil || deadline.SharedOf(second) != shared || deadline.SharedOf(third) == shared {
			t.Error("contexts within an eighth of the timeout share a deadline, and no others do")
		}
		time.Sleep(70 * time.Millisecond)
		synctest.Wait()
		if first.Err() == nil || second.Err() == nil || third.Err() != nil {
			t.Errorf("after the first deadline: %v, %v, %v", first.Err(), second.Err(), third.Err())
		}
		if len(expired) != 1 || <-expired != shared {
			t.Error("the deadline that has passed is reported, and no other")
		}
		<-third.Done()
	})
}

func TestBoundKeepsAnEarlierDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deadline.Deadlines{Timeout: time.Second}
		for _, tt := range []struct {
			left    time.Duration
			patient bool
		}{{400 * time.Millisecond, false}, {600 * time.Millisecond, true}} {
			caller, cancel := context.WithTimeout(t.Context(), tt.left)
			ctx, release := d.Bound(caller)
			if at, _ := ctx.Deadline(); time.Until(at) != tt.left || deadline.SharedOf(ctx) != nil {
				t.Errorf("%v left: ends in %v", tt.left, time.Until(at))
			}
			if deadline.Patient(ctx) != tt.patient {
				t.Errorf("%v left: patient %v", tt.left, deadline.Patient(ctx))
			}
			release()
			cancel()
		}
	})
}

// A command that was sent is waited for, even if its caller has gone.
func TestCallersCancelDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deadline.Deadlines{Timeout: time.Second}
		caller, cancel := context.WithCancel(context.WithValue(t.Context(), d, "value"))
		bounded, _ := d.Bound(caller)
		at, release := deadline.At(caller, time.Now().Add(time.Second))
		defer release()
		for _, ctx := range []context.Context{bounded, at} {
			if got, ok := deadline.Caller(ctx); got != caller || !ok || ctx.Value(d) != "value" {
				t.Error("the caller's context is lost")
			}
		}
		cancel()
		for _, ctx := range []context.Context{bounded, at} {
			if ctx.Err() != nil || !errors.Is(deadline.Cause(ctx), context.Canceled) {
				t.Errorf("ended: %v, cause %v", ctx.Err(), deadline.Cause(ctx))
			}
			select {
			case <-deadline.CallerDone(ctx):
			default:
				t.Error("the caller's end is not seen")
			}
		}
		if _, ok := deadline.Caller(caller); ok || deadline.CallerDone(caller) != nil {
			t.Error("a context of another package has a caller")
		}
		<-bounded.Done()
	})
}

func TestErrSeesALateTimer(t *testing.T) {
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	if err := deadline.Err(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if err := deadline.Err(context.Background()); err != nil {
		t.Errorf("error %v without a deadline", err)
	}
}
