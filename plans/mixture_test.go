package plans_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/plans"
)

// numbered is a Set in which every limit and cap of both plans has one number.
func numbered(t testing.TB, n int) *plans.Set {
	t.Helper()
	return parse(t, fmt.Sprintf(`
default: a
plans:
  a: {limits: {x: {rate: %[1]d, per: 1m}, y: {rate: %[1]d, per: 1m}, z: {rate: %[1]d, per: 1m}}, caps: {streams: %[1]d}}
  b: {limits: {x: {rate: %[2]d, per: 1m}, y: {rate: %[2]d, per: 1m}, z: {rate: %[2]d, per: 1m}}, caps: {streams: %[2]d}}
`[1:], 1_000_000+n, 2_000_000+n))
}

// watch counts decisions, and fails those by a mixture of limits.
type watch struct {
	testing.TB
	decided, distinct, last atomic.Int64
	requests                atomic.Int64  // the limit of the last request
	one                     chan struct{} // holds an element once one has been decided
}

func (w *watch) check(what string, d *core.Decision, caps ...int64) {
	first := d.At(0).Limit
	for _, r := range d.Results() {
		if r.Limit != first {
			w.Errorf("%s by limits of %d and %d", what, first, r.Limit)
		}
	}
	for _, n := range caps {
		if n != first {
			w.Errorf("%s by limits of %d and a cap of %d", what, first, n)
		}
	}
	if w.last.Swap(first) != first {
		w.distinct.Add(1)
	}
	w.decided.Add(1)
	select {
	case w.one <- struct{}{}:
	default:
	}
}

// While the plans are replaced 10,000 times, no request is decided by a mixture: of two Sets, of two
// plans of one tenant, of an override and none, or of two tenants of a chain.
func TestNoDecisionByAMixture(t *testing.T) {
	gate := core.Must(core.NewMemory(core.Config{}))
	var sets [8]*plans.Set
	for i := range sets {
		sets[i] = numbered(t, i)
	}
	d := &directory{plans: map[string]string{"acme": "a"}}
	book := newBook(t, plans.Config{Set: sets[0], Resolve: d.resolve})
	policies := make(map[string]*core.Policy)
	for _, name := range []string{"x", "y", "z"} {
		policies[name] = gatetest.Limited(t, name, core.PerMinute(1))
	}
	w := &watch{TB: t, one: make(chan struct{}, 1)}
	done := make(chan struct{})
	var running sync.WaitGroup
	loop := func(f func(i int)) {
		running.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
					f(i)
					runtime.Gosched()
				}
			}
		})
	}
	// Decisions on two keys, under three policies, by the plan of a tenant and by that of a chain.
	for what, inner := range map[string][]string{
		"of a tenant": nil, "of a chain": {"team"}, "of a long chain": {"team", "user"},
	} {
		loop(func(i int) {
			plan, err := book.For(context.Background(), "acme", inner...)
			if err != nil {
				t.Error(err)
				return
			}
			user := gatetest.Key(t, what, fmt.Sprint("user", i%100))
			d, err := gate.Decide(context.Background(),
				core.Charge{Policy: policies["x"], Key: gatetest.Key(t, what), Cost: 1, Limit: plan.Algorithm("x")},
				core.Charge{Policy: policies["y"], Key: user, Cost: 1, Limit: plan.Algorithm("y")},
				core.Charge{Policy: policies["z"], Key: user, Cost: 1, Limit: plan.Algorithm("z")})
			if err != nil {
				t.Error(err)
				return
			}
			limit, _, _ := plan.Cap("streams")
			w.check("a decision "+what, &d, limit)
		})
	}
	// Requests at a Guard.
	tenant := func(name string) func(*http.Request) (string, error) {
		return func(*http.Request) (string, error) { return name, nil }
	}
	semaphore := core.Must(semaphore.New(gate, semaphore.Config{Name: "s"}))
	guard := core.Must(nethttp.NewGuard(nethttp.Config{
		Gate: gate, Scope: tenant("acme"), Plan: book.Plan(tenant("acme"), tenant("team"), tenant("user")),
		Rules: []nethttp.Rule{
			{Policy: policies["x"], Key: keyfunc.RemoteIP()}, {Policy: policies["y"], Key: keyfunc.RemoteIP()},
			{Policy: policies["z"], Key: keyfunc.RemoteIP()},
		},
		Slot: &nethttp.Slot{Semaphore: semaphore, Caps: []nethttp.Cap{{Name: "streams", Key: keyfunc.RemoteIP(), Limit: 1}}},
	}))
	handler := guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		a := nethttp.AdmissionFromContext(r.Context())
		limit, _, _ := a.Plan().Cap("streams")
		w.check("a request", a.Decision(), limit)
		w.requests.Store(a.Decision().At(0).Limit)
	}))
	loop(func(int) {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
		d := fmt.Sprintf(`"streams";q=%d;`, w.requests.Load())
		if answer.Code != http.StatusOK || !strings.Contains(answer.Header().Get("RateLimit-Policy"), d) {
			t.Errorf("status %d, RateLimit-Policy %s, want %s", answer.Code, answer.Header().Get("RateLimit-Policy"), d)
		}
	})
	own := core.PerMinute(3_000_000)
	special := plans.Override{
		Limits: map[string]core.Algorithm{"x": own, "y": own, "z": own}, Caps: map[string]plans.Cap{"streams": {Limit: 3_000_000}},
	}
	// The plans and overrides of the tenants change too.
	change := func(i int) {
		tenant := []string{"acme", "team", "user"}[i/4%3]
		var err error
		switch i % 4 {
		case 0:
			d.set(tenant, "b", nil)
			err = book.Refresh(context.Background(), tenant)
		case 1:
			err = book.SetOverride(context.Background(), tenant, plans.Override{Plan: "a"})
		case 2:
			d.set(tenant, "", nil)
			_, err = book.DeleteOverride(context.Background(), tenant)
		case 3:
			err = book.SetOverride(context.Background(), tenant, special)
		}
		gatetest.Worked(t, err)
	}
	for i := range 10_000 {
		gatetest.NoError(t, book.Replace(sets[i%len(sets)]))
		if i%4 == 0 {
			change(i / 4)
		}
		<-w.one
	}
	close(done)
	running.Wait()
	t.Logf("%d decisions, with another limit than the one before %d times", w.decided.Load(), w.distinct.Load())
	if w.decided.Load() < 10_000 || w.distinct.Load() < 1000 {
		t.Error("too few to say anything")
	}
}

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
		plan := gatetest.Must(p.For(context.Background(), "tenant-"+strconv.Itoa(10_000_000+i)))(t)
		gatetest.Need(t, plan.Algorithm("api"), core.Algorithm(pro), "got")
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
