package plans_test

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
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
	p := newBook(t, plans.Config{Resolve: resolve, MaxTenants: kept})
	for i := range tenants {
		plan, err := p.For(context.Background(), "tenant-"+strconv.Itoa(10_000_000+i))
		if err != nil || plan.Algorithm("api") != pro {
			t.Fatal(plan, err)
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

// The plan of a tenant that is known costs no allocation, and that of a chain one.
func TestPlanAllocatesNothing(t *testing.T) {
	book := newBook(t, plans.Config{})
	setOverride(t, book, "acme", plans.Override{Plan: "pro"})
	setOverride(t, book, "user", plans.Override{Plan: "free"})
	for want, ask := range []func() (core.Plan, error){
		func() (core.Plan, error) { return book.For(t.Context(), "acme", "team", "nobody") },
		func() (core.Plan, error) { return book.For(t.Context(), "acme", "team", "user") },
	} {
		if allocs := gatetest.Allocs(func() {
			if plan, err := ask(); err != nil || plan == nil {
				t.Fatal(plan, err)
			}
		}); allocs > float64(want) {
			t.Errorf("%v allocations, want %d", allocs, want)
		}
	}
}

// BenchmarkPlan asks for the plan of one tenant, and of one of many, on one CPU and on all.
func BenchmarkPlan(b *testing.B) {
	for _, tenants := range []int{1, 100_000} {
		book := newBook(b, plans.Config{MaxTenants: 2 * tenants})
		names := make([]string, tenants)
		for i := range names {
			names[i] = "tenant-" + strconv.Itoa(i)
			gatetest.Must(book.For(b.Context(), names[i]))(b)
		}
		ask := func(i int) {
			plan, err := book.For(b.Context(), names[i%tenants])
			if err != nil || plan.Algorithm("api") == nil {
				b.Fatal(plan, err)
			}
		}
		b.Run(strconv.Itoa(tenants), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				ask(i * 7919)
			}
		})
		b.Run(strconv.Itoa(tenants)+"-parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					ask(i * 7919)
				}
			})
		})
	}
}
