package adapters_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"

	chigate "github.com/headgate/headgate/adapters/chi"
	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/keyfunc"
)

// part adds something to a router of chi, such as a route or the guard.
type part func(r chi.Router, guard outside)

// chiOf returns what makes a router of parts.
func chiOf(parts ...part) func(*nethttp.Guard) http.Handler {
	return func(g *nethttp.Guard) http.Handler { return routerOf(chigate.Middleware(g), parts) }
}

func routerOf(guard outside, parts []part) chi.Router {
	r := chi.NewRouter()
	for _, p := range parts {
		p(r, guard)
	}
	return r
}

// guarded uses the guard.
func guarded(r chi.Router, guard outside) { r.Use(guard) }

func use(m outside) part { return func(r chi.Router, _ outside) { r.Use(m) } }

func get(path string) part { return func(r chi.Router, _ outside) { r.Get(path, ok) } }

// with is a route with the guard.
func with(path string) part { return func(r chi.Router, guard outside) { r.With(guard).Get(path, ok) } }

// below is a mounted router of parts.
func below(path string, parts ...part) part {
	return func(r chi.Router, guard outside) { r.Mount(path, routerOf(guard, parts)) }
}

// stripped is a router of parts in http.StripPrefix, which the router around it does not know.
func stripped(path string, parts ...part) part {
	return func(r chi.Router, guard outside) { r.Mount(path, http.StripPrefix(path, routerOf(guard, parts))) }
}

// chi's middleware finds the whole pattern wherever it is installed, and whatever other middleware
// rewrites.
func TestChiFindsTheRouteEverywhere(t *testing.T) {
	handler := http.HandlerFunc(ok)
	for _, c := range []struct {
		name, target string
		parts        []part
		want         string
	}{
		{"Use", "/users/1", []part{guarded, get("/users/{id}")}, "/users/{id}"},
		{"With", "/users/1", []part{with("/users/{id}")}, "/users/{id}"},
		{"Group", "/users/1", []part{func(r chi.Router, guard outside) {
			r.Group(func(r chi.Router) {
				r.Use(guard)
				r.Get("/users/{id}", handler)
			})
		}}, "/users/{id}"},
		{"Route", "/api/items/7", []part{func(r chi.Router, guard outside) {
			r.Route("/api", func(r chi.Router) {
				r.Use(guard)
				r.Get("/items/{id}", handler)
			})
		}}, "/api/items/{id}"},
		{"Use above a mount", "/api/t/acme/items/7", []part{guarded, below("/api/t/{tenant}", get("/items/{id}"))}, "/api/t/{tenant}/items/{id}"},
		{"Use of a mounted router", "/api/t/acme/items/7", []part{below("/api/t/{tenant}", guarded, get("/items/{id}"))}, "/api/t/{tenant}/items/{id}"},
		{"With of a mounted router", "/api/items/7", []part{below("/api", with("/items/{id}"))}, "/api/items/{id}"},
		{"With of a mount", "/api/users/7", []part{func(r chi.Router, guard outside) {
			r.With(guard).Route("/api", func(r chi.Router) { r.Get("/users/{id}", handler) })
		}}, "/api/users/{id}"},
		{"two mounts deep", "/a/b/items/7", []part{below("/a", below("/b", guarded, get("/items/{id:[0-9]+}")))}, "/a/b/items/{id:[0-9]+}"},
		{"mount of a foreign handler", "/files/a/b", []part{guarded, func(r chi.Router, _ outside) { r.Mount("/files", handler) }}, "/files/*"},
		{"404 of a mounted router", "/api/nope", []part{below("/api", guarded, get("/items/{id}"))}, "/api/*"},
		{"wildcard of With below a mount", "/api/files/a/b", []part{below("/api", with("/files/*"))}, "/api/files/*"},
		{"GetHead", "HEAD /users/1", []part{use(chimiddleware.GetHead), guarded, get("/users/{id}")}, "/users/{id}"},
		{"GetHead inside", "HEAD /users/1", []part{guarded, use(chimiddleware.GetHead), get("/users/{id}")}, "/users/{id}"},
		{"StripSlashes", "/users/1/", []part{use(chimiddleware.StripSlashes), guarded, get("/users/{id}")}, "/users/{id}"},
		{"StripSlashes and With", "/users/1/", []part{use(chimiddleware.StripSlashes), with("/users/{id}")}, "/users/{id}"},
		{"StripSlashes and a mount", "/api/items/7/", []part{use(chimiddleware.StripSlashes), below("/api", guarded, get("/items/{id}"))}, "/api/items/{id}"},
		{"StripSlashes of nothing, and a mount", "/api/items/7", []part{use(chimiddleware.StripSlashes), below("/api", guarded, get("/items/{id}"), get("/*"))}, "/api/items/{id}"},
		{"StripSlashes and the rest of a mount", "/api/other", []part{use(chimiddleware.StripSlashes), below("/api", guarded, get("/items/{id}"), get("/*"))}, "/api/*"},
		{"CleanPath", "/users//1", []part{use(chimiddleware.CleanPath), guarded, get("/users/{id}")}, "/users/{id}"},
		{"CleanPath and a mount", "/api//items/x/../7", []part{use(chimiddleware.CleanPath), below("/api", guarded, get("/items/{id}"))}, "/api/items/{id}"},
		{"mount with StripPrefix", "/_api/users/7", []part{below("/_api", use(chimiddleware.StripPrefix("/_api")), guarded, get("/users/{id}"))}, "/_api/users/{id}"},
		{"mount of a value with StripPrefix", "/t/acme/users/7",
			[]part{below("/t/{tenant:[a-z]{2,9}}", use(chimiddleware.StripPrefix("/t/acme")), guarded, get("/users/{id}"))}, "/t/{tenant:[a-z]{2,9}}/users/{id}"},
		{"router in StripPrefix, wrapped", "/api/users/7", []part{func(r chi.Router, guard outside) {
			r.Mount("/api", http.StripPrefix("/api", guard(routerOf(guard, []part{get("/users/{id}")}))))
		}}, "/api/users/{id}"},
		{"router in StripPrefix, Use", "/api/users/7", []part{stripped("/api", guarded, get("/users/{id}"))}, "/api/*"},
		{"router in StripPrefix, With", "/api/users/7", []part{stripped("/api", with("/users/{id}"))}, "/api/users/{id}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			method, target, found := strings.Cut(c.target, " ")
			if !found {
				method, target = http.MethodGet, c.target
			}
			w := send(chiOf(c.parts...)(f.guard(f.perRoute())), method, target)
			if (w.Code == 404) != strings.HasPrefix(c.name, "404") {
				t.Errorf("status %d", w.Code)
			}
			if !slices.Equal(f.keys, []string{c.want}) {
				t.Errorf("keys %q, want %q", f.keys, c.want)
			}
		})
	}
}

// Outside of a router the middleware finds the route that the router will choose, if there is one,
// and handlers around it see the route afterwards.
func TestChiFindsTheRouteOutside(t *testing.T) {
	var seen string
	sees := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r); seen = r.Pattern })
	}
	for name, c := range map[string]struct {
		build        func(*nethttp.Guard) http.Handler
		target, want string
	}{
		"around the whole router": {func(g *nethttp.Guard) http.Handler {
			return chigate.Middleware(g)(routerOf(nil, []part{get("/users/{id}")}))
		}, "/users/1", "/users/{id}"},
		"outside chi": {func(g *nethttp.Guard) http.Handler {
			return chigate.Middleware(g)(http.HandlerFunc(ok))
		}, "/users/1", keyfunc.Unmatched},
		"StripPrefix of the whole path": {func(g *nethttp.Guard) http.Handler {
			return http.StripPrefix("/app", chiOf(guarded, get("/"))(g))
		}, "/app", "/"},
		"seen by outer middleware": {chiOf(use(sees), guarded, get("/users/{id}")), "/users/1", "/users/{id}"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			if w := send(c.build(f.guard(f.perRoute())), "GET", c.target); w.Code != 200 || !slices.Equal(f.keys, []string{c.want}) {
				t.Errorf("status %d, keys %q", w.Code, f.keys)
			}
		})
	}
	if seen != "/users/{id}" {
		t.Errorf("outer middleware sees the pattern %q", seen)
	}
}
