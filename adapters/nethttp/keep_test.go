package nethttp_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
)

// named is a Dialect that states one policy under names of its own.
type named struct {
	nethttp.None
	headers nethttp.LimitHeaders
}

func (d named) WriteHeaders(h http.Header, a *nethttp.Admission) {
	d.headers.Write(h, a, func(core.Result) string { return "360" })
}

// A reverse proxy adds the limits of its server to those of the Guard, whatever they are called.
// Clients see those of the Guard.
func TestProxyStatesNoOtherLimit(t *testing.T) {
	for _, prefix := range []string{"X-RateLimit", "RateLimit", "X-Rate-Limit", "Vendor-RateLimit-Requests"} {
		for _, hints := range []int{0, 1, 2} {
			t.Run(fmt.Sprint(prefix, " after ", hints, " early hints"), func(t *testing.T) {
				s := proxied(t, func(w http.ResponseWriter, _ *http.Request) {
					for range hints {
						w.WriteHeader(http.StatusEarlyHints)
					}
					w.Header().Set(prefix+"-Limit", "5000")
					w.Header().Set(prefix+"-Remaining", "4999")
					io.WriteString(w, "hello")
				}, guard(t, nethttp.Config{
					Gate: memory(t, newClock()), Rules: rules(t, core.PolicyConfig{Name: "p", Algorithm: core.PerHour(10)}),
					Dialect: named{headers: nethttp.LimitHeaders{
						Limit: prefix + "-Limit", Remaining: prefix + "-Remaining", Reset: prefix + "-Reset",
					}},
				}).Handler)
				r := gatetest.Must(s.Client().Get(s.URL))(t)
				if got := body(t, r); got != "hello" {
					t.Error(got)
				}
				for name, want := range map[string]string{"-Limit": "[10]", "-Remaining": "[9]", "-Reset": "[360]"} {
					if got := fmt.Sprint(r.Header.Values(prefix + name)); got != want {
						t.Errorf("%s%s is %s, want %s", prefix, name, got, want)
					}
				}
			})
		}
	}
}

// A Guard inside another one, on a request of the handler's own, keeps no headers of the response that
// the outer one states its limits in.
func TestInnerRequestKeepsItsOwnHeaders(t *testing.T) {
	limited := func(name string, limit int64) *nethttp.Guard {
		return guard(t, nethttp.Config{
			Gate: memory(t, newClock()), Rules: rules(t, core.PolicyConfig{Name: name, Algorithm: core.PerHour(limit)}),
			Dialect: nethttp.Legacy{},
		})
	}
	inner := limited("inner", 5).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Language", "en")
		w.WriteHeader(http.StatusNoContent)
	}))
	s := proxied(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("X-RateLimit-Limit", "5000")
	}, func(proxy http.Handler) http.Handler {
		return limited("outer", 10).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			part := httptest.NewRecorder()
			inner.ServeHTTP(part, r)
			if got := part.Header().Get("X-RateLimit-Limit"); part.Code != http.StatusNoContent || got != "5" {
				t.Errorf("inside: status %d, X-RateLimit-Limit %s", part.Code, got)
			}
			proxy.ServeHTTP(w, r)
		}))
	})
	r := gatetest.Must(s.Client().Get(s.URL))(t)
	body(t, r)
	if got := fmt.Sprint(r.Header["X-Ratelimit-Limit"], r.Header["X-Ratelimit-Remaining"]); got != "[10] [9]" {
		t.Error(got)
	}
}

// proxied returns a server of a handler, and of a proxy to upstream in it.
func proxied(t *testing.T, upstream http.HandlerFunc, handler func(proxy http.Handler) http.Handler) *httptest.Server {
	t.Helper()
	up := httptest.NewServer(upstream)
	t.Cleanup(up.Close)
	s := httptest.NewServer(handler(httputil.NewSingleHostReverseProxy(core.Must(url.Parse(up.URL)))))
	t.Cleanup(s.Close)
	return s
}
