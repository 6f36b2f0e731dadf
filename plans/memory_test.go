package plans_test

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/plans"
)

// mostBytes is what Config.MaxTenants promises of a tenant.
const mostBytes = 400

// Tenants stay within the memory that Config.MaxTenants states, however many there are. With
// HEADGATE_TEST_LONG a million of them are kept.
func TestMemoryOfTenants(t *testing.T) {
	tenants, kept := 30_000, 10_000
	if os.Getenv("HEADGATE_TEST_LONG") != "" {
		tenants, kept = 2_000_000, 1_000_000
	}
	resolve := func(context.Context, string) (string, error) { return "pro", nil }
	before := heap()
	p := newPlans(t, plans.Config{Resolve: resolve, MaxTenants: kept})
	limit := p.For("api")
	for i := range tenants {
		key, err := core.NewKey("tenant-"+strconv.Itoa(10_000_000+i), "user")
		if err != nil {
			t.Fatal(err)
		}
		if l, err := limit(context.Background(), key); l != pro || err != nil {
			t.Fatal(l, err)
		}
	}
	used := heap() - before
	each := used / int64(kept)
	t.Logf("%d tenants of %d take %d bytes each", kept, tenants, each)
	if each > mostBytes {
		t.Errorf("a tenant takes %d bytes, more than %d", each, mostBytes)
	}
	runtime.KeepAlive(p)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A limit of a tenant that is known costs no allocation.
func TestLimitAllocatesNothing(t *testing.T) {
	p := newPlans(t, plans.Config{})
	key, limit := newKey(t, "acme", "user"), p.For("api")
	ctx := t.Context()
	if allocs := testing.AllocsPerRun(1000, func() {
		if _, err := limit(ctx, key); err != nil {
			t.Fatal(err)
		}
	}); allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func BenchmarkLimit(b *testing.B) {
	p := newPlans(b, plans.Config{})
	key, limit := newKey(b, "acme", "user"), p.For("api")
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := limit(ctx, key); err != nil {
			b.Fatal(err)
		}
	}
}
