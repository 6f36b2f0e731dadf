package adapters_test

import (
	"io"
	"net/http"
	"net/url"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v5"

	chigate "github.com/headgate/headgate/adapters/chi"
	echov5gate "github.com/headgate/headgate/adapters/echov5"
	gingate "github.com/headgate/headgate/adapters/gin"
	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
)

const noTenant = "no tenant"

// tenantOf returns the key that PathValue derives from a request for this escaped path. Without
// keepRaw the URL has its decoded Path alone, as after a rewrite.
func tenantOf(t *testing.T, escaped string, keepRaw bool, build func(*nethttp.Guard) http.Handler) string {
	t.Helper()
	path := gatetest.Must(url.PathUnescape(escaped))(t)
	tenant := noTenant
	f := newFixture(t)
	cfg := f.perRoute()
	only(one, func(rule *nethttp.Rule) {
		byTenant := keyfunc.Must(keyfunc.PathValue("tenant"))
		rule.Key = func(r *http.Request) (string, error) {
			key, err := byTenant(r)
			if err == nil {
				tenant = key
			}
			return key, err
		}
	})(f, &cfg)
	send(build(f.guard(cfg)), "GET", "/", func(r *http.Request) {
		r.URL.Path, r.URL.RawPath = path, ""
		if keepRaw {
			r.URL.RawPath = escaped
		}
	})
	return tenant
}

func TestPathValueHasOneSpelling(t *testing.T) {
	for _, c := range []struct {
		name, path  string
		raw, plain  string // the values with and without RawPath
		unlikeInGin string // the value in gin, which matches the decoded path, with RawPath
	}{
		{name: "plain", path: "/t/acme/reports", raw: "acme", plain: "acme"},
		{name: "escaped letter", path: "/t/%61cme/reports", raw: "acme", plain: "acme"},
		{name: "escaped slash", path: "/t/a%2Fb/reports", raw: "a/b", plain: noTenant, unlikeInGin: noTenant},
		{name: "escaped percent sign", path: "/t/100%25/reports", raw: "100%", plain: "100%"},
		{name: "escape of an escape", path: "/t/%2561cme/reports", raw: "%61cme", plain: "%61cme"},
		{name: "plus sign", path: "/t/a+b/reports", raw: "a+b", plain: "a+b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, fw framework) {
				build := func(g *nethttp.Guard) http.Handler {
					return fw.build(&app{root: g, routes: []route{{"GET", "/t/{tenant}/reports", ok}}, log: io.Discard})
				}
				want := c.raw
				if fw.name == "gin" && c.unlikeInGin != "" {
					want = c.unlikeInGin
				}
				if got := tenantOf(t, c.path, true, build); got != want {
					t.Errorf("with RawPath: got %q, want %q", got, want)
				}
				if got := tenantOf(t, c.path, false, build); got != c.plain {
					t.Errorf("without RawPath: got %q, want %q", got, c.plain)
				}
			})
		})
	}
}

// Settings and middleware that make a router match another path than its default.
func TestPathValueIsUnescapedOnce(t *testing.T) {
	ginWith := func(set func(*gin.Engine)) func(*nethttp.Guard) http.Handler {
		return func(g *nethttp.Guard) http.Handler {
			engine := gin.New()
			set(engine)
			engine.Use(gingate.Middleware(g))
			engine.GET("/t/:tenant", gin.WrapF(ok))
			return engine
		}
	}
	echov5With := func(cfg echo.RouterConfig) func(*nethttp.Guard) http.Handler {
		return func(g *nethttp.Guard) http.Handler {
			e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(cfg)})
			e.Use(echov5gate.Middleware(g))
			e.GET("/t/:tenant", echo.WrapHandler(http.HandlerFunc(ok)))
			return e
		}
	}
	chiWith := func(outer ...func(http.Handler) http.Handler) func(*nethttp.Guard) http.Handler {
		return func(g *nethttp.Guard) http.Handler {
			r := chi.NewRouter()
			r.Use(outer...)
			r.Use(chigate.Middleware(g))
			r.Get("/t/{tenant}", ok)
			return r
		}
	}
	chiMount := func(below func(chi.Router, func(http.Handler) http.Handler)) func(*nethttp.Guard) http.Handler {
		return func(g *nethttp.Guard) http.Handler {
			r := chi.NewRouter()
			r.Route("/api", func(r chi.Router) { below(r, chigate.Middleware(g)) })
			return r
		}
	}
	chiRoute := func(g *nethttp.Guard) http.Handler {
		r := chi.NewRouter()
		r.With(chigate.Middleware(g)).Get("/t/{tenant}", ok)
		return r
	}
	for _, c := range []struct {
		name, path, want string
		build            func(*nethttp.Guard) http.Handler
	}{
		{"gin, UseRawPath", "/t/%2561cme", "%61cme", ginWith(func(e *gin.Engine) { e.UseRawPath = true })},
		{"gin, UseRawPath and a slash", "/t/a%2Fb", "a/b", ginWith(func(e *gin.Engine) { e.UseRawPath = true })},
		{"echo v5, matching on the decoded path", "/t/%2561cme", "%61cme",
			echov5With(echo.RouterConfig{UseEscapedPathForMatching: true})},
		{"echo v5, unescaping itself", "/t/%2561cme", "%61cme",
			echov5With(echo.RouterConfig{UnescapePathParamValues: true})},
		{"chi, StripSlashes", "/t/%2561cme/", "%61cme", chiWith(chimiddleware.StripSlashes)},
		{"chi, StripSlashes of nothing", "/t/%2561cme", "%61cme", chiWith(chimiddleware.StripSlashes)},
		{"chi, CleanPath", "/t//%2561cme", "%61cme", chiWith(chimiddleware.CleanPath)},
		{"chi, URLFormat", "/t/%2561cme.json", "%61cme", chiWith(chimiddleware.URLFormat)},
		{"chi, at a route", "/t/%2561cme", "%61cme", chiRoute},
		{"chi, StripPrefix below a mount", "/api/t/%2561cme", "%61cme", chiMount(func(r chi.Router, guard func(http.Handler) http.Handler) {
			r.Use(chimiddleware.StripPrefix("/api"), guard)
			r.Get("/t/{tenant}", ok)
		})},
		{"chi, StripPrefix and StripSlashes below a mount", "/api/t/%2561cme/", "%61cme", chiMount(func(r chi.Router, guard func(http.Handler) http.Handler) {
			r.Use(chimiddleware.StripSlashes, chimiddleware.StripPrefix("/api"), guard)
			r.Get("/t/{tenant}", ok)
		})},
		{"chi, a value of the mount", "/api/%2561cme/x", "%61cme", chiMount(func(r chi.Router, guard func(http.Handler) http.Handler) {
			r.Route("/{tenant}", func(r chi.Router) {
				r.Use(guard)
				r.Get("/x", ok)
			})
		})},
		{"chi, around a router in StripPrefix", "/api/x/t/%2561cme", "%61cme", chiMount(func(r chi.Router, guard func(http.Handler) http.Handler) {
			inner := chi.NewRouter()
			inner.Get("/t/{tenant}", ok)
			r.Mount("/x", http.StripPrefix("/api/x", guard(inner)))
		})},
		{"chi, at a route of a router in StripPrefix", "/api/x/t/%2561cme", "%61cme", chiMount(func(r chi.Router, guard func(http.Handler) http.Handler) {
			inner := chi.NewRouter()
			inner.With(guard).Get("/t/{tenant}", ok)
			r.Mount("/x", http.StripPrefix("/api/x", inner))
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := tenantOf(t, c.path, true, c.build); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
