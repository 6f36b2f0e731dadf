package memstore_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/memstore"
)

func TestLeasesForgetIdleScopes(t *testing.T) {
	now := int64(1)
	var told []string
	l := memstore.NewLeases(func() int64 { return now }, func(m string) { told = append(told, m) })
	ask := func(id string, waiters int64) lease.Grant {
		return gatetest.Must(l.Acquire(t.Context(), "scope", lease.Request{
			ID: id, Channel: "c", Lease: int64(time.Second / time.Microsecond), Patience: 1_000_000, Waiters: waiters,
			Metadata: "-", Levels: []lease.Level{{Node: "{k}", Limit: 1, Weight: 1}},
		}))(t)
	}
	if g := ask("a", 0); g.Status != lease.Held {
		t.Fatalf("%+v", g)
	}
	if g := ask("b", 10); g.Status != lease.Waiting {
		t.Fatalf("%+v", g)
	}
	if err := l.Release(t.Context(), "scope", []string{"a"}); err != nil || len(told) != 1 {
		t.Fatalf("the waiter was told %q: %v", told, err)
	}
	gatetest.NoError(t, l.Release(t.Context(), "scope", []string{"b"}))
	if _, entries, err := l.List(t.Context(), "scope"); err != nil || len(entries) != 0 {
		t.Errorf("entries %v: %v", entries, err)
	}
}
