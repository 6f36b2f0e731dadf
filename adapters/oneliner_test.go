package adapters_test

import (
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// The same line limits an API in every framework.
func TestOneLiner(t *testing.T) {
	each(t, func(t *testing.T, fw framework) {
		h := fw.bare(core.Must(nethttp.Limit(newFixture(t).gate, "api", core.PerMinute(2), keyfunc.RemoteIP())), ok)
		for i, want := range []int{200, 200, 429} {
			w := send(h, "GET", "/users/1")
			if w.Code != want || w.Header().Get("RateLimit-Policy") != `"api";q=2;w=60` {
				t.Errorf("request %d: status %d, want %d; %v", i, w.Code, want, w.Header())
			}
		}
	})
}

// A Guard that was never made is reported when the middleware is built, not at a request.
func TestInvalidGuardPanicsAtConstruction(t *testing.T) {
	each(t, func(t *testing.T, fw framework) {
		for kind, g := range map[string]*nethttp.Guard{"nil": nil, "zero": {}} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: no panic", kind)
					}
				}()
				fw.around(same, ok, g)
			}()
		}
	})
}
