package tenants_test

import (
	"context"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/gatetest"
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

// A tenant that is asked for often stays while others come and go.
func TestTableIsBounded(t *testing.T) {
	for _, most := range []int{3, 640} {
		synctest.Test(t, func(t *testing.T) {
			table, calls := newTable(t, most)
			expect(t, table, "often", 1)
			for i := range 5 * most {
				gatetest.Must(table.Get(t.Context(), strconv.Itoa(i)))(t)
				expect(t, table, "often", 1)
			}
			before, again := calls.Load(), int64(0)
			for i := range 5 * most {
				gatetest.Must(table.Get(t.Context(), strconv.Itoa(i)))(t)
			}
			if again = calls.Load() - before; again < int64(4*most) {
				t.Errorf("of %d tenants %d were learned again: more than %d are kept", 5*most, again, most)
			}
		})
	}
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
		gatetest.Is(t, gatetest.Err(table.Get(t.Context(), "acme")), tenants.ErrLate, "got")
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
