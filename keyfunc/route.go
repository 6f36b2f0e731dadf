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
// the mux, or the pattern is not known yet. An adapter of another router fills it in. It trusts the router alone, and is wrong
// where routes of several hosts have the same path: they share a key. Requests that match no route are all Unmatched; the
// path itself is never a key, because clients make up as many as they like.
func Route() Func {
	return func(r *http.Request) (string, error) {
		if i := strings.IndexByte(r.Pattern, '/'); i >= 0 {
			return r.Pattern[i:], nil
		}
		return Unmatched, nil
	}
}

// Method is the request's method. HEAD counts as GET, because a GET route answers it; methods that are not registered all
// count as "OTHER", because clients can make them up. It trusts the request line, and is wrong alone: it is one key for
// all clients, so Join it with whose request it is.
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

// Static is the same key for every request, for a limit that all share. It trusts nothing, and is wrong for
// a limit that one client must not use up for the others. With an empty key every call fails.
func Static(key string) Func {
	if key == "" {
		return fail(errors.New("keyfunc: Static: the key is empty"))
	}
	return func(*http.Request) (string, error) { return key, nil }
}
