package tenants_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/plans/internal/tenants"
)

// newTable returns a Table whose values count the calls of Learn, which takes 10 ms.
func newTable(t *testing.T, most int) (*tenants.Table[int64], *atomic.Int64) {
	calls := new(atomic.Int64)
	table := tenants.New(tenants.Config[int64]{
		Max: most, Retry: time.Minute, Patience: time.Second,
		Learn: func(context.Context, string, int64, bool) tenants.Answer[int64] {
			time.Sleep(10 * time.Millisecond) // in a bubble
			return tenants.Answer[int64]{Value: calls.Add(1), For: time.Minute}
		},
	})
	t.Cleanup(table.Close)
	return table, calls
}

func expect(t *testing.T, table *tenants.Table[int64], name string, want int64) {
	t.Helper()
	if got, err := table.Get(t.Context(), name); got != want || err != nil {
		t.Errorf("%s is %d, %v; want %d", name, got, err, want)
	}
}

// Callers that ask for a tenant at the same time share what is learned, for as long as it is fresh
// and nothing is said to have changed.
func TestTenantIsLearnedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, _ := newTable(t, 1000)
		ask := func(want int64) {
			var callers sync.WaitGroup
			for range 100 {
				callers.Go(func() { expect(t, table, "acme", want) })
			}
			callers.Wait()
		}
		ask(1)
		table.Changed("another")
		time.Sleep(time.Minute - time.Millisecond)
		ask(1)
		time.Sleep(time.Millisecond)
		ask(2)
		table.Changed("acme")
		ask(3)
		table.AllChanged()
		ask(4)
		table.Close()
		ask(4)
		if _, err := table.Get(t.Context(), "another"); !errors.Is(err, tenants.ErrClosed) {
			t.Error(err)
		}
	})
}

// A tenant that is asked for often stays while others come and go.
func TestTableIsBounded(t *testing.T) {
	for _, most := range []int{3, 640} {
		synctest.Test(t, func(t *testing.T) {
			table, calls := newTable(t, most)
			expect(t, table, "often", 1)
			for i := range 5 * most {
				if _, err := table.Get(t.Context(), strconv.Itoa(i)); err != nil {
					t.Fatal(err)
				}
				expect(t, table, "often", 1)
			}
			before, again := calls.Load(), int64(0)
			for i := range 5 * most {
				if _, err := table.Get(t.Context(), strconv.Itoa(i)); err != nil {
					t.Fatal(err)
				}
			}
			if again = calls.Load() - before; again < int64(4*most) {
				t.Errorf("of %d tenants %d were learned again: more than %d are kept", 5*most, again, most)
			}
		})
	}
}

// A caller does not wait for ever for what is learned.
func TestCallerWaitsNoLongerThanPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := tenants.New(tenants.Config[int]{
			Max: 1, Retry: time.Minute, Patience: time.Second,
			Learn: func(context.Context, string, int, bool) tenants.Answer[int] {
				time.Sleep(time.Hour)
				return tenants.Answer[int]{Value: 1, For: time.Hour}
			},
		})
		defer table.Close()
		began := time.Now()
		if _, err := table.Get(t.Context(), "acme"); !errors.Is(err, tenants.ErrLate) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := table.Get(ctx, "acme"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// A Learn that calls runtime.Goexit, as t.Fatal does, ends. The next caller learns again.
func TestLearnThatExitsIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		table := tenants.New(tenants.Config[int]{
			Max: 1, Retry: time.Minute, Patience: time.Second,
			Learn: func(context.Context, string, int, bool) tenants.Answer[int] {
				if calls++; calls != 2 {
					runtime.Goexit()
				}
				return tenants.Answer[int]{Value: 7, For: time.Second}
			},
		})
		defer table.Close()
		began := time.Now()
		if _, err := table.Get(t.Context(), "acme"); !errors.Is(err, tenants.ErrLate) {
			t.Error(err)
		}
		for range 2 { // what was known holds where it cannot be learned
			if v, err := table.Get(t.Context(), "acme"); v != 7 || err != nil {
				t.Error(v, err)
			}
			table.Changed("acme")
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("a caller waited for %v", took)
		}
	})
}
