package nethttp_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
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
				upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					for range hints {
						w.WriteHeader(http.StatusEarlyHints)
					}
					w.Header().Set(prefix+"-Limit", "5000")
					w.Header().Set(prefix+"-Remaining", "4999")
					io.WriteString(w, "hello")
				}))
				defer upstream.Close()
				target, err := url.Parse(upstream.URL)
				if err != nil {
					t.Fatal(err)
				}
				g := guard(t, nethttp.Config{
					Gate: memory(t, newClock()), Rules: rules(t, core.PolicyConfig{Name: "p", Algorithm: core.PerHour(10)}),
					Dialect: named{headers: nethttp.LimitHeaders{
						Limit: prefix + "-Limit", Remaining: prefix + "-Remaining", Reset: prefix + "-Reset",
					}},
				})
				s := httptest.NewServer(g.Handler(httputil.NewSingleHostReverseProxy(target)))
				defer s.Close()
				r, err := s.Client().Get(s.URL)
				if err != nil {
					t.Fatal(err)
				}
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

// A proxy writes the header of an upgrade to the connection that it has hijacked.
func TestProxiedUpgradeStatesNoOtherLimit(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n"+
			"X-RateLimit-Limit: 5000\r\n\r\n")
	}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	g := guard(t, nethttp.Config{
		Gate: memory(t, newClock()), Rules: rules(t, core.PolicyConfig{Name: "p", Algorithm: core.PerHour(10)}),
		Dialect: nethttp.Legacy{},
	})
	s := httptest.NewServer(g.Handler(httputil.NewSingleHostReverseProxy(target)))
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(r.Header.Values("X-RateLimit-Limit")); r.StatusCode != 101 || got != "[10]" {
		t.Errorf("status %d, X-RateLimit-Limit %s", r.StatusCode, got)
	}
}

// A Guard inside another one, on a request of the handler's own, keeps no headers of the response that
// the outer one states its limits in.
func TestInnerRequestKeepsItsOwnHeaders(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("X-RateLimit-Limit", "5000")
	}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
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
	proxy := httputil.NewSingleHostReverseProxy(target)
	s := httptest.NewServer(limited("outer", 10).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		part := httptest.NewRecorder()
		inner.ServeHTTP(part, r)
		if got := part.Header().Get("X-RateLimit-Limit"); part.Code != http.StatusNoContent || got != "5" {
			t.Errorf("inside: status %d, X-RateLimit-Limit %s", part.Code, got)
		}
		proxy.ServeHTTP(w, r)
	})))
	defer s.Close()
	r, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	body(t, r)
	if got := fmt.Sprint(r.Header["X-Ratelimit-Limit"], r.Header["X-Ratelimit-Remaining"]); got != "[10] [9]" {
		t.Error(got)
	}
}
