package plans_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
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

// While the plans are replaced 10,000 times, no decision and no request is decided by a mixture: of
// two Sets, of two plans of one tenant, or of an override and none.
func TestNoDecisionByAMixture(t *testing.T) {
	gate, err := core.NewMemory(core.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var sets [8]*plans.Set
	for i := range sets {
		sets[i] = numbered(t, i)
	}
	d := &directory{plans: map[string]string{"acme": "a"}}
	p := newPlans(t, plans.Config{Set: sets[0], Resolve: d.resolve})
	policies := make(map[string]*core.Policy)
	for _, name := range []string{"x", "y", "z"} {
		cfg := core.PolicyConfig{Name: name, Algorithm: core.PerMinute(1), For: p.For(name)}
		if policies[name], err = core.NewPolicy(cfg); err != nil {
			t.Fatal(err)
		}
	}
	semaphore, err := core.NewSemaphore(gate, core.SemaphoreConfig{Name: "s"})
	if err != nil {
		t.Fatal(err)
	}

	var decided, distinct atomic.Int64
	done, one := make(chan struct{}), make(chan struct{}, 1) // one has been decided
	var last atomic.Int64
	check := func(what string, d *core.Decision, caps ...int64) {
		first := d.At(0).Limit
		for _, r := range d.Results() {
			if r.Limit != first {
				t.Errorf("%s by limits of %d and %d", what, first, r.Limit)
			}
		}
		for _, n := range caps {
			if n != first {
				t.Errorf("%s by limits of %d and a cap of %d", what, first, n)
			}
		}
		if last.Swap(first) != first {
			distinct.Add(1)
		}
		decided.Add(1)
		select {
		case one <- struct{}{}:
		default:
		}
	}
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
	// Decisions on two keys of the tenant, under three policies.
	loop(func(i int) {
		user := newKey(t, "acme", fmt.Sprint("user", i%100))
		d, err := gate.Decide(context.Background(),
			core.Charge{Policy: policies["x"], Key: newKey(t, "acme"), Cost: 1},
			core.Charge{Policy: policies["y"], Key: user, Cost: 1}, core.Charge{Policy: policies["z"], Key: user, Cost: 1})
		if err != nil {
			t.Error(err)
			return
		}
		check("a decision", &d)
	})
	// Requests at a Guard whose rules and caps look up the plan in three ways.
	tenant := func(*http.Request) (string, error) { return "acme", nil }
	var seenCap atomic.Int64
	capLimit := p.CapLimit("streams", tenant)
	plain := func(name string) *core.Policy {
		own, err := core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: core.PerMinute(1)})
		if err != nil {
			t.Fatal(err)
		}
		return own
	}
	guard := nethttp.Must(nethttp.NewGuard(nethttp.Config{
		Gate: gate, Scope: tenant,
		Rules: []nethttp.Rule{
			{Policy: policies["x"], Key: keyfunc.RemoteIP()},
			{Policy: plain("y"), Key: keyfunc.RemoteIP(), Limit: p.RuleLimit("y", tenant)},
			{Policy: plain("z"), Key: keyfunc.RemoteIP(), Limit: p.RuleLimit("z", tenant)},
		},
		Concurrency: &nethttp.Concurrency{Semaphore: semaphore, Caps: []nethttp.Cap{{
			Key: keyfunc.RemoteIP(), Limit: 1, LimitFor: func(r *http.Request) (int64, error) {
				n, err := capLimit(r)
				seenCap.Store(n)
				return n, err
			},
		}}},
	}))
	handler := guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		d, _ := nethttp.FromContext(r.Context())
		check("a request", &d, seenCap.Load())
	}))
	loop(func(int) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code != http.StatusOK {
			t.Errorf("status %d", w.Code)
		}
	})
	// The tenant's plan and override change too.
	change := func(i int) {
		var err error
		switch i % 4 {
		case 0:
			d.set("acme", "b", nil)
			err = p.Refresh(context.Background(), "acme")
		case 1:
			err = p.SetOverride(context.Background(), "acme", plans.Override{Plan: "a"})
		case 2:
			d.set("acme", "a", nil)
			_, err = p.DeleteOverride(context.Background(), "acme")
		case 3:
			limit := core.PerMinute(3_000_000)
			err = p.SetOverride(context.Background(), "acme", plans.Override{
				Limits: map[string]core.Algorithm{"x": limit, "y": limit, "z": limit}, Caps: map[string]int64{"streams": 3_000_000},
			})
		}
		if err != nil {
			t.Error(err)
		}
	}
	for i := range 10_000 {
		if err := p.Replace(sets[i%len(sets)]); err != nil {
			t.Fatal(err)
		}
		if i%4 == 0 {
			change(i / 4)
		}
		<-one
	}
	close(done)
	running.Wait()
	t.Logf("%d decisions, with another limit than the one before %d times", decided.Load(), distinct.Load())
	if decided.Load() < 10_000 || distinct.Load() < 1000 {
		t.Error("too few to say anything")
	}
}
