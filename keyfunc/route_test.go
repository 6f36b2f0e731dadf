package keyfunc_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/keyfunc"
)

func TestRouteOfServeMux(t *testing.T) {
	var got string
	inside := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, _ = keyfunc.Route()(r) })
	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", inside)
	mux.Handle("example.org/users/{id}", inside)
	mux.Handle("POST /files/{path...}", inside)
	for _, c := range []struct{ name, method, target, want string }{
		{"GET", "GET", "/users/1", "/users/{id}"},
		{"HEAD is the same", "HEAD", "/users/2", "/users/{id}"},
		{"host is not part of it", "GET", "http://example.org/users/3", "/users/{id}"},
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
	t.Run("around the mux no route is known", func(t *testing.T) {
		r := httptest.NewRequest("GET", "/users/1", nil)
		if got, err := keyfunc.Route()(r); got != keyfunc.Unmatched || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
}
