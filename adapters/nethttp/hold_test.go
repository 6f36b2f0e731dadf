package nethttp_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
)

// A request keeps what it holds as long as its handler runs, and spends it for good afterwards,
// with a slot and without one.
func TestRequestKeepsItsHold(t *testing.T) {
	for _, capped := range []bool{false, true} {
		name := "without a slot"
		if capped {
			name = "with a slot"
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := core.Must(core.NewMemory(core.Config{}))
				defer func() { _ = gate.Close(t.Context()) }()
				policy := core.Must(core.NewPolicy(core.PolicyConfig{
					Name: "budget", Algorithm: core.TokenBucket{Burst: 10}, Hold: time.Second,
				}))
				key := keyfunc.Must(keyfunc.Static("k"))
				cfg := nethttp.Config{Gate: gate, Rules: []nethttp.Rule{{
					Policy: policy, Key: key, Cost: func(*http.Request) int64 { return 4 },
				}}}
				if capped {
					cfg.Slot = &nethttp.Slot{
						Semaphore: core.Must(semaphore.New(gate, semaphore.Config{Name: "s"})),
						Caps:      []nethttp.Cap{{Key: key, Limit: 1}},
					}
				}
				used := func() int64 {
					d, err := gate.Peek(t.Context(), core.Charge{Policy: policy, Key: core.Must(core.NewKey("k")), Cost: core.NoCost})
					if err != nil {
						t.Fatal(err)
					}
					return d.At(0).Used
				}
				guard := core.Must(nethttp.NewGuard(cfg))
				h := guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					time.Sleep(time.Hour)
					if n := used(); n != 4 {
						t.Errorf("%d units are in use while the handler runs, want 4", n)
					}
				}))
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
				time.Sleep(time.Hour)
				if n := used(); n != 4 || w.Code != http.StatusOK {
					t.Errorf("%d units are in use afterwards, status %d", n, w.Code)
				}
			})
		})
	}
}

// A request that is refused after it was charged, because its id was handled, holds nothing.
func TestRefusedRequestHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := core.Must(core.NewMemory(core.Config{}))
		defer func() { _ = gate.Close(t.Context()) }()
		held := core.Must(core.NewPolicy(core.PolicyConfig{
			Name: "budget", Algorithm: core.TokenBucket{Burst: 100}, Hold: time.Second,
		}))
		spent := core.Must(core.NewPolicy(core.PolicyConfig{Name: "requests", Algorithm: core.TokenBucket{Burst: 100}}))
		key := keyfunc.Must(keyfunc.Static("k"))
		guard := core.Must(nethttp.NewGuard(nethttp.Config{
			Gate: gate,
			Rules: []nethttp.Rule{
				{Policy: held, Key: key, Cost: func(*http.Request) int64 { return 10 }},
				{Policy: spent, Key: key},
			},
		}))
		h := replay(t, guard, nethttp.ReplayConfig{Once: newOnce(t, gate), ID: keyfunc.Must(keyfunc.Static("id"))}).
			Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for range 5 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
		}
		time.Sleep(time.Hour)
		for policy, want := range map[*core.Policy]int64{held: 10, spent: 5} {
			d, err := gate.Peek(t.Context(), core.Charge{Policy: policy, Key: core.Must(core.NewKey("k")), Cost: core.NoCost})
			if err != nil || d.At(0).Used != want {
				t.Errorf("%s: %d units are in use, want %d, %v", policy.Name(), d.At(0).Used, want, err)
			}
		}
	})
}
