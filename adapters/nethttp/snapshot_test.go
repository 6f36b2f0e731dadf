package nethttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Every rule, cap and policy with limits of its own sees one snapshot of a request, and the handler
// sees none.
func TestRequestIsDecidedByOneSnapshot(t *testing.T) {
	var current atomic.Int64
	now := func(ctx context.Context) int64 {
		return core.Snapshot(ctx, &current, func() int64 { return current.Add(1) })
	}
	limit := func(ctx context.Context) (core.Algorithm, error) {
		return core.TokenBucket{Rate: 1, Per: time.Hour, Burst: 10 + now(ctx)}, nil
	}
	for _, maxDelay := range []time.Duration{0, time.Second} {
		gate := memory(t, newClock())
		semaphore, err := core.NewSemaphore(gate, core.SemaphoreConfig{Name: "s"})
		if err != nil {
			t.Fatal(err)
		}
		rule := nethttp.Rule{Key: keyfunc.RemoteIP(), Limit: func(r *http.Request) (core.Algorithm, error) {
			return limit(r.Context())
		}}
		first, second := rule, rule
		first.Policy = policy(t, core.PolicyConfig{Name: "a", Algorithm: core.PerHour(1)})
		second.Policy = policy(t, core.PolicyConfig{Name: "b", Algorithm: core.PerHour(1)})
		var capped, shared int64
		g := guard(t, nethttp.Config{
			Gate: gate, Rules: []nethttp.Rule{first, second}, MaxDelay: maxDelay,
			Slot: &nethttp.Slot{Semaphore: semaphore, Caps: []nethttp.Cap{{
				Key: keyfunc.RemoteIP(), Limit: 1, LimitFor: func(r *http.Request) (int64, error) {
					capped = now(r.Context())
					return capped, nil
				},
			}, {
				Key: keyfunc.Must(keyfunc.Static("all")), Limit: 1,
				ShareFor: func(r *http.Request) (share, floor int64, err error) {
					shared = now(r.Context())
					return shared, 0, nil
				},
			}}},
		})
		h := g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			d := nethttp.AdmissionFromContext(r.Context()).Decision()
			for i := range d.Len() {
				if got := d.At(i).Limit; got != 10+capped {
					t.Errorf("result %d has limit %d, and the cap %d", i, got, capped)
				}
			}
			if shared != capped {
				t.Errorf("the share is %d, and the cap %d", shared, capped)
			}
			if a, b := now(r.Context()), now(r.Context()); a == b || a <= capped {
				t.Errorf("the handler is in the snapshot: %d, %d", a, b)
			}
		}))
		for range 3 {
			if r := get(h); r.StatusCode != http.StatusOK {
				t.Errorf("status %d", r.StatusCode)
			}
		}
		charges, err := g.Charges(httptest.NewRequest(http.MethodGet, "/", nil))
		if err != nil || charges[0].Limit != charges[1].Limit {
			t.Errorf("Charges: %v, %v", charges, err)
		}
	}
}

// What a Limit parses and reads of a request, the handler finds parsed and read.
func TestLimitParsesTheForm(t *testing.T) {
	p := policy(t, core.PolicyConfig{Name: "a", Algorithm: core.PerHour(1)})
	g := guard(t, nethttp.Config{Gate: memory(t, newClock()), Rules: []nethttp.Rule{{
		Policy: p, Key: keyfunc.RemoteIP(), Limit: func(r *http.Request) (core.Algorithm, error) {
			r.PostFormValue("plan")
			return nil, nil
		},
	}}})
	var plan string
	h := g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { plan = r.PostFormValue("plan") }))
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("plan=pro"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	h.ServeHTTP(httptest.NewRecorder(), r)
	if plan != "pro" {
		t.Errorf("the handler reads %q", plan)
	}
}
