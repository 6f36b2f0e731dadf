package nethttp_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
)

// A request keeps what it holds as long as its handler runs, and spends it for good afterwards,
// with a slot and without one.
func TestRequestKeepsItsHold(t *testing.T) {
	for name, capped := range map[string]bool{"without a slot": false, "with a slot": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := gatetest.Memory(t, core.Config{})
				all := rules(t, core.PolicyConfig{Name: "budget", Algorithm: core.TokenBucket{Burst: 10}, Hold: time.Second})
				all[0].Cost = func(*http.Request) int64 { return 4 }
				cfg := nethttp.Config{Gate: gate, Rules: all}
				if capped {
					cfg.Slot = &nethttp.Slot{
						Semaphore: newSemaphore(t, gate, semaphore.Config{}),
						Caps:      []nethttp.Cap{{Key: keyfunc.RemoteIP(), Limit: 1}},
					}
				}
				charge := core.Charge{Policy: all[0].Policy, Key: core.Must(core.NewKey("192.0.2.1"))}
				r := get(guard(t, cfg).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					time.Sleep(time.Hour)
					if n := used(t, gate, charge); n != 4 {
						t.Errorf("%d units are in use while the handler runs, want 4", n)
					}
				})))
				time.Sleep(time.Hour)
				if n := used(t, gate, charge); n != 4 || r.StatusCode != http.StatusOK {
					t.Errorf("%d units are in use afterwards, status %d", n, r.StatusCode)
				}
			})
		})
	}
}

// A request that is refused after it was charged, because its id was handled, holds nothing.
func TestRefusedRequestHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := gatetest.Memory(t, core.Config{})
		all := rules(t,
			core.PolicyConfig{Name: "budget", Algorithm: core.TokenBucket{Burst: 100}, Hold: time.Second},
			core.PolicyConfig{Name: "requests", Algorithm: core.TokenBucket{Burst: 100}})
		all[0].Cost = func(*http.Request) int64 { return 10 }
		h := replay(t, guard(t, nethttp.Config{Gate: gate, Rules: all}), nethttp.ReplayConfig{Once: newOnce(t, gate), ID: byID}).
			Handler(http.HandlerFunc(ok))
		for range 5 {
			get(h, withID("id"))
		}
		time.Sleep(time.Hour)
		for i, want := range []int64{10, 5} {
			if n := used(t, gate, core.Charge{Policy: all[i].Policy, Key: core.Must(core.NewKey("192.0.2.1"))}); n != want {
				t.Errorf("%s: %d units are in use, want %d", all[i].Policy.Name(), n, want)
			}
		}
	})
}

// used returns what is in use under a charge.
func used(t *testing.T, gate *core.Gate, c core.Charge) int64 {
	t.Helper()
	c.Cost = core.NoCost
	d := gatetest.Peek(t, gate, c)
	return d.At(0).Used
}
