package nethttp_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// panicText returns the text of the panic of f, or "".
func panicText(f func()) (text string) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case error:
			text = p.Error()
		default:
			text = "not an error"
		}
	}()
	f()
	return ""
}

func TestMustPanicsWithConstructorsError(t *testing.T) {
	made := counted(t)
	if got := nethttp.Must(made, nil); got != made {
		t.Error("Must returned another Guard")
	}
	text := panicText(func() {
		nethttp.Must(nethttp.Limit(nil, "api", core.PerMinute(1), keyfunc.RemoteIP()))
	})
	if !strings.Contains(text, "nethttp: Config.Gate is nil") {
		t.Errorf("panic %q", text)
	}
}

// A Guard that NewGuard did not make is reported when the handler is built, not at a request.
func TestInvalidGuardPanicsAtConstruction(t *testing.T) {
	for name, build := range map[string]func(*nethttp.Guard){
		"Must":       func(g *nethttp.Guard) { nethttp.Must(g, nil) },
		"Handler":    func(g *nethttp.Guard) { g.Handler(http.HandlerFunc(ok)) },
		"Middleware": func(g *nethttp.Guard) { nethttp.Middleware(g) },
	} {
		for kind, g := range map[string]*nethttp.Guard{"nil": nil, "zero": {}} {
			t.Run(name+", "+kind, func(t *testing.T) {
				const want = "nethttp: the Guard is nil or zero: NewGuard or Limit must make it"
				if got := panicText(func() { build(g) }); got != want {
					t.Errorf("panic %q, want %q", got, want)
				}
			})
		}
	}
}

// An adapter may call Admit without a check. It must neither panic nor admit uncounted requests.
func TestAdmitOfInvalidGuardRefuses(t *testing.T) {
	for name, g := range map[string]*nethttp.Guard{"nil": nil, "zero": {}} {
		t.Run(name, func(t *testing.T) {
			r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
			a := g.Admit(r)
			a.WriteHeaders(w.Header())
			g.Refuse(w, r, a)
			a.Finish(r, a.Status())
			if a.Allowed() || a.Err() == nil || w.Code != http.StatusInternalServerError {
				t.Errorf("allowed %v, %v, status %d", a.Allowed(), a.Err(), w.Code)
			}
			if _, err := g.Charges(r); err == nil {
				t.Error("Charges returned no error")
			}
			if _, err := g.Levels(r); err == nil {
				t.Error("Levels returned no error")
			}
		})
	}
}

func TestHandlerAndMiddlewareAreTheSame(t *testing.T) {
	g := counted(t)
	next := http.HandlerFunc(ok)
	for i, h := range []http.Handler{g.Handler(next), nethttp.Middleware(g)(next)} {
		want := []string{`"p";r=9`, `"p";r=8`}[i]
		if r := get(h); r.StatusCode != 200 || r.Header.Get("RateLimit") != want {
			t.Errorf("%d, RateLimit %s, want %s", r.StatusCode, r.Header.Get("RateLimit"), want)
		}
	}
}

func TestEnumerationsHaveNames(t *testing.T) {
	for want, got := range map[string]string{
		"refuse": nethttp.NoKeyRefuse.String(), "skip": nethttp.NoKeySkip.String(), "unknown": nethttp.NoKey(200).String(),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
