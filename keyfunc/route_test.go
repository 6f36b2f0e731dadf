package keyfunc_test

import (
	"net/http"
	"testing"

	"github.com/headgate/headgate/keyfunc"
)

func TestRoute(t *testing.T) {
	of := func(pattern string) func(*http.Request) { return func(r *http.Request) { r.Pattern = pattern } }
	expectAll(t, keyfunc.Route(),
		row{"none", of(""), keyfunc.Unmatched},
		row{"path", of("/users/{id}"), "/users/{id}"},
		row{"method and path", of("GET /users/{id}"), "/users/{id}"},
		row{"method, host and path", of("GET example.com/a/{b...}"), "/a/{b...}"},
		row{"host", of("example.com/"), "/"},
	)
}

func TestMethod(t *testing.T) {
	by := func(method string) func(*http.Request) { return func(r *http.Request) { r.Method = method } }
	expectAll(t, keyfunc.Method(),
		row{"empty", by(""), "GET"},
		row{"GET", by("GET"), "GET"},
		row{"HEAD", by("HEAD"), "GET"},
		row{"POST", by("POST"), "POST"},
		row{"QUERY", by("QUERY"), "QUERY"},
		row{"lower case", by("get"), "OTHER"},
		row{"made up", by("FOO"), "OTHER"},
	)
}
