package chigate

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"
)

var contexts = sync.Pool{New: func() any { return chi.NewRouteContext() }}

// setRoute sets the pattern and the path values of the route that chi is about to find. It searches
// from the root, because a router between knows only its own part. inner is the router that the
// middleware wraps, or nil. setRoute unescapes path values, so that every spelling of a value is one
// key.
func setRoute(r *http.Request, inner chi.Routes) {
	rctx := chi.RouteContext(r.Context())
	switch {
	case rctx == nil && inner == nil:
		return
	case rctx == nil:
		rctx = &chi.Context{} // nothing has routed yet
	}
	whole := routedPath(r, rctx)
	found := contexts.Get().(*chi.Context) // Find records in it what it meets
	defer contexts.Put(found)
	pattern, sofar := "", rctx.RoutePattern()
	if rctx.Routes != nil {
		pattern = find(rctx.Routes, found, r, rctx, whole)
	}
	values := &found.URLParams
	if pattern == "" || !strings.HasPrefix(pattern, strings.TrimSuffix(sofar, "*")) || pattern == sofar {
		// The rest is in no router that the root knows, such as one in http.StripPrefix.
		pattern, values = sofar, &rctx.URLParams
		if inner != nil {
			setValues(r, values, whole)
			rest := find(inner, found, r, rctx, ownPath(r, rctx))
			if rest != "" {
				pattern, values = strings.TrimSuffix(sofar, "/*")+rest, &found.URLParams
			}
		}
	}
	if pattern != "" {
		r.Pattern = pattern
		setValues(r, values, whole)
	}
}

// find returns the pattern of a path, or "" if there is none.
func find(routes chi.Routes, found *chi.Context, r *http.Request, rctx *chi.Context, path string) string {
	method := rctx.RouteMethod
	if method == "" {
		method = r.Method
	}
	for _, m := range [...]string{method, http.MethodGet} {
		found.Reset()
		if pattern := routes.Find(found, m, path); pattern != "" {
			return pattern
		}
		if method != http.MethodHead { // middleware.GetHead may answer HEAD by GET
			break
		}
	}
	return ""
}

// setValues sets the path values, whose path was whole.
func setValues(r *http.Request, values *chi.RouteParams, whole string) {
	// chi matches the escaped path if there is one. Some middleware, such as StripSlashes, makes it
	// match URL.Path. StripPrefix leaves the end of that.
	end := strings.TrimSuffix(r.URL.Path, "/")
	plain := strings.HasPrefix(r.URL.Path, whole) || end != "" && strings.HasSuffix(whole, end)
	for i, key := range values.Keys {
		value := values.Values[i]
		if unescaped, err := url.PathUnescape(value); r.URL.RawPath != "" && !plain && err == nil {
			value = unescaped
		}
		r.SetPathValue(key, value)
	}
}

// ownPath returns the path that the router around the middleware matches.
func ownPath(r *http.Request, rctx *chi.Context) string {
	return cmp.Or(rctx.RoutePath, r.URL.RawPath, r.URL.Path, "/")
}

// routedPath returns the path that chi matches from the root. Below a mount that is the patterns so
// far, with their values, and the rest: middleware such as http.StripPrefix has changed r.URL.
func routedPath(r *http.Request, rctx *chi.Context) string {
	if len(rctx.RoutePatterns) == 0 {
		return ownPath(r, rctx)
	}
	var whole strings.Builder
	values := rctx.URLParams.Values
	next := func() (value string) {
		if len(values) > 0 {
			value, values = values[0], values[1:]
		}
		return value
	}
	mounted := false
	for _, pattern := range rctx.RoutePatterns {
		mounted = false
		for pattern != "" {
			i := strings.IndexAny(pattern, "{*")
			if i < 0 {
				whole.WriteString(pattern)
				break
			}
			text, value := pattern[:i], next()
			// A mount has emptied its wildcard. The next pattern, or the rest, begins with a slash.
			if mounted = pattern[i] == '*' && value == ""; mounted {
				text = strings.TrimSuffix(text, "/")
			}
			whole.WriteString(text + value)
			pattern = after(pattern[i:])
		}
	}
	if mounted {
		whole.WriteString(ownPath(r, rctx))
	}
	return whole.String()
}

// after returns what follows the placeholder that a pattern begins with. Its regexp may have braces.
func after(pattern string) string {
	depth := 0
	for i := range len(pattern) {
		switch pattern[i] {
		case '{':
			depth++
		case '}':
			depth--
		}
		if depth == 0 {
			return pattern[i+1:]
		}
	}
	return ""
}
