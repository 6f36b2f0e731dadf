package keyfunc

import (
	"errors"
	"net/http"
	"strings"
)

// Unmatched is the key of Route for a request that matches no route. It is never a pattern, because
// patterns begin with a slash.
const Unmatched = "unmatched"

// Route returns a Func whose key is the pattern of the request's route without method and host,
// such as "/users/{id}". GET and HEAD of one path have the same key.
//
// It reads Request.Pattern, which http.ServeMux sets when it has chosen a handler: wrap the
// handlers and not the mux. The adapters for other routers set the pattern themselves. Route trusts
// the router alone. Routes of several hosts with the same path share a key.
//
// All requests that match no route have the key Unmatched. The path itself is never a key, because
// a client can make up any number of paths.
func Route() Func {
	return func(r *http.Request) (string, error) {
		if i := strings.IndexByte(r.Pattern, '/'); i >= 0 {
			return r.Pattern[i:], nil
		}
		return Unmatched, nil
	}
}

// Method returns a Func whose key is the method of the request: one of RFC 9110, PATCH (RFC 5789)
// or QUERY (RFC 10008). HEAD counts as GET, because a GET route answers it. All other methods count
// as "OTHER", because a client can make them up. The key is the same for all clients: Join it with
// the client's key.
func Method() Func {
	return func(r *http.Request) (string, error) {
		switch r.Method {
		case "", http.MethodHead:
			return http.MethodGet, nil
		case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
			http.MethodOptions, http.MethodConnect, http.MethodTrace, "QUERY":
			return r.Method, nil
		}
		return "OTHER", nil
	}
}

// Static returns a Func with the same key for every request, for a limit that all requests share.
// It trusts nothing, and is wrong for a limit that one client must not exhaust for the others. An
// empty key is an error.
func Static(key string) (Func, error) {
	if key == "" {
		return nil, errors.New("keyfunc: Static: the key is empty")
	}
	return func(*http.Request) (string, error) { return key, nil }, nil
}
