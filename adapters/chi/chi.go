// Package chigate applies a nethttp.Guard to the routes of a chi router.
//
//	r := chi.NewRouter()
//	r.Use(middleware.Recoverer, chigate.Middleware(guard))
//
// The middleware knows the route before chi has chosen it, also that of a mounted sub-router, so that keyfunc.Route and
// keyfunc.PathValue work wherever it stands: in Use of any router, in With and in Group. chi wants every Use of a router before
// its first route. Handlers read the decision with nethttp.FromContext(r.Context()).
//
// Middleware that rewrites the path, such as middleware.StripSlashes, stands outside of it.
//
// A request that chi answers with 404 or 405 has no route: below a mount it may have that of the mount, such as "/api/*",
// and never one that its client makes up.
package chigate

import (
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/keyfunc"
)

// Middleware applies the guard to what it wraps. It is nethttp.Middleware for chi: a refusal is answered as the Guard's
// Config says, the ResponseWriter is passed on as it is, and a panic goes through. Outside a chi router it is the same
// without a route. It is safe for concurrent use.
func Middleware(g *nethttp.Guard) func(http.Handler) http.Handler {
	guarded := nethttp.Middleware(g)
	return func(next http.Handler) http.Handler {
		next = guarded(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			route(r)
			next.ServeHTTP(w, r)
		})
	}
}

// ClientIP is the address that one of chi's ClientIPFrom* middlewares has chosen, an IPv6 address by its /64. It trusts that
// choice: ClientIPFromXFF, ClientIPFromXFFTrustedProxies and ClientIPFromHeader do not look at the peer, so they are wrong where
// clients reach the server past the proxies. Without such a middleware in front, or where it found no address, a request
// has no key (keyfunc.ErrNoKey). Never put middleware.RealIP in front: it overwrites the peer's address with what clients write,
// and with it keyfunc.RemoteIP and keyfunc.TrustedProxies are forged.
func ClientIP() keyfunc.Func {
	return keyfunc.Must(keyfunc.Address(func(r *http.Request) string { return middleware.GetClientIP(r.Context()) }))
}

var contexts = sync.Pool{New: func() any { return chi.NewRouteContext() }}

// route fills in what chi is about to find. It looks from the root, because a router in between knows only its own part.
// It unescapes path values, so that every spelling of a value is one key.
func route(r *http.Request) {
	rctx := chi.RouteContext(r.Context())
	if rctx == nil || rctx.Routes == nil {
		return
	}
	method := rctx.RouteMethod
	if method == "" {
		method = r.Method
	}
	whole := r.URL.RawPath
	if whole == "" {
		whole = r.URL.Path
	}
	switch {
	case rctx.RoutePath == "" && whole == "": // all of it was stripped
		whole = "/"
	case rctx.RoutePath != "" && len(rctx.RoutePatterns) == 0: // rewritten, as by middleware.StripSlashes
		whole = rctx.RoutePath
	case !strings.HasSuffix(whole, rctx.RoutePath):
		// Below a mount chi no longer tells the whole path it was rewritten to: StripSlashes and CleanPath make it a clean one.
		whole = path.Clean(whole)
	}
	// chi matches on the escaped path if there is one. Some middleware, such as StripSlashes, makes
	// it match on URL.Path.
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
		if method != http.MethodHead { // which middleware.GetHead may answer by GET
			return
		}
	}
}
