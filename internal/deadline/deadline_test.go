package deadline_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/deadline"
)

func TestDetachedContextsShareDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deadline.Deadlines{Timeout: 80 * time.Millisecond}
		first := d.Detach(t.Context())
		time.Sleep(10 * time.Millisecond)
		second := d.Detach(t.Context())
		time.Sleep(time.Nanosecond)
		third := d.Detach(t.Context())
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
		d := &deadline.Deadlines{Timeout: time.Second}
		caller, cancel := context.WithTimeout(context.WithValue(t.Context(), d, "value"), time.Millisecond)
		ctx := d.Detach(caller)
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
	if err := deadline.Err(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	for name, ctx := range map[string]context.Context{
		"without a deadline": context.Background(),
		"with one of Until":  deadline.Until(context.Background(), time.Now().Add(-time.Second)),
	} {
		if err := deadline.Err(ctx); err != nil {
			t.Errorf("error %v %s", err, name)
		}
	}
}
