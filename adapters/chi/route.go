package chigate

import (
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"
)

var contexts = sync.Pool{New: func() any { return chi.NewRouteContext() }}

// setRoute sets the pattern and the path values of the route that chi is about to find. It searches
// from the root, because a router between knows only its own part. It unescapes path values, so
// that every spelling of a value is one key.
func setRoute(r *http.Request) {
	rctx := chi.RouteContext(r.Context())
	if rctx == nil || rctx.Routes == nil {
		return
	}
	method := rctx.RouteMethod
	if method == "" {
		method = r.Method
	}
	whole := routedPath(r, rctx)
	// chi matches the escaped path if there is one. Some middleware, such as StripSlashes, makes it
	// match URL.Path.
	escaped := r.URL.RawPath != "" && !strings.HasPrefix(r.URL.Path, whole)
	found := contexts.Get().(*chi.Context) // Find records in it what it meets
	defer contexts.Put(found)
	for _, m := range [...]string{method, http.MethodGet} {
		found.Reset()
		if pattern := rctx.Routes.Find(found, m, whole); pattern != "" {
			r.Pattern = pattern
			for i, key := range found.URLParams.Keys {
				value := found.URLParams.Values[i]
				if plain, err := url.PathUnescape(value); escaped && err == nil {
					value = plain
				}
				r.SetPathValue(key, value)
			}
			return
		}
		if method != http.MethodHead { // middleware.GetHead may answer HEAD by GET
			return
		}
	}
}

// routedPath returns the path that chi matches from the root.
func routedPath(r *http.Request, rctx *chi.Context) string {
	whole := r.URL.RawPath
	if whole == "" {
		whole = r.URL.Path
	}
	switch {
	case rctx.RoutePath == "" && whole == "": // http.StripPrefix removed all of it
		return "/"
	case rctx.RoutePath != "" && len(rctx.RoutePatterns) == 0: // rewritten by middleware
		return rctx.RoutePath
	case !strings.HasSuffix(whole, rctx.RoutePath):
		// Below a mount chi no longer has the whole rewritten path. StripSlashes and CleanPath
		// rewrite to a clean one.
		return path.Clean(whole)
	}
	return whole
}
