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
	byTenant := keyfunc.Must(keyfunc.PathValue("tenant"))
	guard := newFixture(t).limit(one, keyed(func(r *http.Request) (string, error) {
		key, err := byTenant(r)
		if err == nil {
			tenant = key
		}
		return key, err
	}))
	send(build(guard), "GET", "/", func(r *http.Request) {
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
	tenant := get("/t/{tenant}")
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
		{"chi, StripSlashes", "/t/%2561cme/", "%61cme", chiOf(use(chimiddleware.StripSlashes), guarded, tenant)},
		{"chi, StripSlashes of nothing", "/t/%2561cme", "%61cme", chiOf(use(chimiddleware.StripSlashes), guarded, tenant)},
		{"chi, CleanPath", "/t//%2561cme", "%61cme", chiOf(use(chimiddleware.CleanPath), guarded, tenant)},
		{"chi, URLFormat", "/t/%2561cme.json", "%61cme", chiOf(use(chimiddleware.URLFormat), guarded, tenant)},
		{"chi, at a route", "/t/%2561cme", "%61cme", chiOf(with("/t/{tenant}"))},
		{"chi, StripPrefix below a mount", "/api/t/%2561cme", "%61cme",
			chiOf(below("/api", use(chimiddleware.StripPrefix("/api")), guarded, tenant))},
		{"chi, StripPrefix and StripSlashes below a mount", "/api/t/%2561cme/", "%61cme",
			chiOf(below("/api", use(chimiddleware.StripSlashes), use(chimiddleware.StripPrefix("/api")), guarded, tenant))},
		{"chi, a value of the mount", "/api/%2561cme/x", "%61cme", chiOf(below("/api", below("/{tenant}", guarded, get("/x"))))},
		{"chi, around a router in StripPrefix", "/api/x/t/%2561cme", "%61cme", chiOf(below("/api", func(r chi.Router, guard outside) {
			r.Mount("/x", http.StripPrefix("/api/x", guard(routerOf(guard, []part{tenant}))))
		}))},
		{"chi, at a route of a router in StripPrefix", "/api/x/t/%2561cme", "%61cme", chiOf(below("/api", func(r chi.Router, guard outside) {
			r.Mount("/x", http.StripPrefix("/api/x", routerOf(guard, []part{with("/t/{tenant}")})))
		}))},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := tenantOf(t, c.path, true, c.build); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
