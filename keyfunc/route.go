package keyfunc

import (
	"errors"
	"net/http"
	"strings"
)

// Unmatched is the key of Route for requests that match no route. Patterns begin with a slash, so it is none of them.
const Unmatched = "unmatched"

// Route is the pattern of the request's route, without method and host, such as "/users/{id}": GET and HEAD of one path have
// the same. It reads Request.Pattern, which http.ServeMux sets when it has chosen a handler: wrap the handlers and not
// the mux, or the pattern is not known yet. Requests that match no route are all Unmatched; the path itself is never a
// key, because clients make up as many as they like.
func Route() Func {
	return func(r *http.Request) (string, error) {
		if i := strings.IndexByte(r.Pattern, '/'); i >= 0 {
			return r.Pattern[i:], nil
		}
		return Unmatched, nil
	}
}

// Method is the request's method. HEAD counts as GET, and methods that are not registered count as one.
func Method() Func {
	return func(r *http.Request) (string, error) {
		switch r.Method {
		case "", http.MethodHead:
			return http.MethodGet, nil
		case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
			http.MethodConnect, http.MethodTrace:
			return r.Method, nil
		}
		return "OTHER", nil
	}
}

// Static is the same key for every request, for a limit that all share. With an empty key every call fails.
func Static(key string) Func {
	if key == "" {
		return fail(errors.New("keyfunc: Static: the key is empty"))
	}
	return func(*http.Request) (string, error) { return key, nil }
}
