package keyfunc_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/keyfunc"
)

func serve(h http.Handler, target string) {
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, target, nil))
}

func TestRoute(t *testing.T) {
	for _, c := range []struct{ name, pattern, want string }{
		{"none", "", keyfunc.Unmatched},
		{"path", "/users/{id}", "/users/{id}"},
		{"method and path", "GET /users/{id}", "/users/{id}"},
		{"method, host and path", "GET example.com/a/{b...}", "/a/{b...}"},
		{"host", "example.com/", "/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request(func(r *http.Request) { r.Pattern = c.pattern })
			expect(t, keyfunc.Route(), r, c.want)
		})
	}
}

func TestRouteOfServeMux(t *testing.T) {
	var got string
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, _ = keyfunc.Route()(r) })
	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", handler)
	mux.Handle("example.org/users/{id}", handler)
	mux.Handle("POST /files/{path...}", handler)
	for _, c := range []struct{ name, method, target, want string }{
		{"GET", "GET", "/users/1", "/users/{id}"},
		{"HEAD", "HEAD", "/users/2", "/users/{id}"},
		{"another host", "GET", "http://example.org/users/3", "/users/{id}"},
		{"rest of the path", "POST", "/files/a/b", "/files/{path...}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got = ""
			mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(c.method, c.target, nil))
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	t.Run("around the mux", func(t *testing.T) {
		expect(t, keyfunc.Route(), httptest.NewRequest("GET", "/users/1", nil), keyfunc.Unmatched)
	})
}

func TestMethod(t *testing.T) {
	for _, c := range []struct{ name, method, want string }{
		{"empty", "", "GET"},
		{"GET", "GET", "GET"},
		{"HEAD", "HEAD", "GET"},
		{"POST", "POST", "POST"},
		{"QUERY", "QUERY", "QUERY"},
		{"lower case", "get", "OTHER"},
		{"made up", "FOO", "OTHER"},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, keyfunc.Method(), request(func(r *http.Request) { r.Method = c.method }), c.want)
		})
	}
}

func TestStatic(t *testing.T) {
	expect(t, keyfunc.Must(keyfunc.Static("all")), request(nil), "all")
}
