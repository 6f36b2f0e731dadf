package adapters_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	echov4 "github.com/labstack/echo/v4"
	echov4middleware "github.com/labstack/echo/v4/middleware"
	"github.com/labstack/echo/v5"
	echomiddleware "github.com/labstack/echo/v5/middleware"

	chigate "github.com/headgate/headgate/adapters/chi"
	echogate "github.com/headgate/headgate/adapters/echo"
	echov5gate "github.com/headgate/headgate/adapters/echov5"
	gingate "github.com/headgate/headgate/adapters/gin"
	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

// send plays a request on a handler without a server.
func send(h http.Handler, method, target string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// once is a guard that admits one request of each client.
func (f *fixture) once() *nethttp.Guard { return f.limit(one) }

// chi's middleware finds the whole pattern wherever it is installed, and outer handlers see it.
func TestChiFindsTheRouteEverywhere(t *testing.T) {
	handler := http.HandlerFunc(ok)
	for _, c := range []struct {
		name, target string
		install      func(chi.Router, func(http.Handler) http.Handler)
		want         string
	}{
		{"Use", "/users/1", func(r chi.Router, m func(http.Handler) http.Handler) {
			r.Use(m)
			r.Get("/users/{id}", handler)
		}, "/users/{id}"},
		{"With", "/users/1", func(r chi.Router, m func(http.Handler) http.Handler) {
			r.With(m).Get("/users/{id}", handler)
		}, "/users/{id}"},
		{"Group", "/users/1", func(r chi.Router, m func(http.Handler) http.Handler) {
			r.Group(func(r chi.Router) {
				r.Use(m)
				r.Get("/users/{id}", handler)
			})
		}, "/users/{id}"},
		{"Use above a mount", "/api/t/acme/items/7", func(r chi.Router, m func(http.Handler) http.Handler) {
			r.Use(m)
			r.Route("/api/t/{tenant}", func(r chi.Router) { r.Get("/items/{id}", handler) })
		}, "/api/t/{tenant}/items/{id}"},
		{"Use of a mounted router", "/api/t/acme/items/7", func(r chi.Router, m func(http.Handler) http.Handler) {
			sub := chi.NewRouter()
			sub.Use(m)
			sub.Get("/items/{id}", handler)
			r.Mount("/api/t/{tenant}", sub)
		}, "/api/t/{tenant}/items/{id}"},
		{"With of a mounted router", "/api/items/7", func(r chi.Router, m func(http.Handler) http.Handler) {
			r.Route("/api", func(r chi.Router) { r.With(m).Get("/items/{id}", handler) })
		}, "/api/items/{id}"},
		{"two mounts deep", "/a/b/items/7", func(r chi.Router, m func(http.Handler) http.Handler) {
			r.Route("/a", func(r chi.Router) {
				r.Route("/b", func(r chi.Router) {
					r.Use(m)
					r.Get("/items/{id:[0-9]+}", handler)
				})
			})
		}, "/a/b/items/{id:[0-9]+}"},
		{"mount of a foreign handler", "/files/a/b", func(r chi.Router, m func(http.Handler) http.Handler) {
			r.Use(m)
			r.Mount("/files", handler)
		}, "/files/*"},
		{"404 of a mounted router", "/api/nope", func(r chi.Router, m func(http.Handler) http.Handler) {
			r.Route("/api", func(r chi.Router) {
				r.Use(m)
				r.Get("/items/{id}", handler)
			})
		}, "/api/*"},
		{"GetHead", "HEAD /users/1", func(r chi.Router, m func(http.Handler) http.Handler) {
			r.Use(chimiddleware.GetHead, m)
			r.Get("/users/{id}", handler)
		}, "/users/{id}"},
		{"StripSlashes", "/users/1/", func(r chi.Router, m func(http.Handler) http.Handler) {
			r.Use(chimiddleware.StripSlashes, m)
			r.Get("/users/{id}", handler)
		}, "/users/{id}"},
		{"StripSlashes and With", "/users/1/", func(r chi.Router, m func(http.Handler) http.Handler) {
			r.Use(chimiddleware.StripSlashes)
			r.With(m).Get("/users/{id}", handler)
		}, "/users/{id}"},
		{"StripSlashes and a mount", "/api/items/7/", func(r chi.Router, m func(http.Handler) http.Handler) {
			r.Use(chimiddleware.StripSlashes)
			r.Route("/api", func(r chi.Router) {
				r.Use(m)
				r.Get("/items/{id}", handler)
			})
		}, "/api/items/{id}"},
		{"CleanPath", "/users//1", func(r chi.Router, m func(http.Handler) http.Handler) {
			r.Use(chimiddleware.CleanPath, m)
			r.Get("/users/{id}", handler)
		}, "/users/{id}"},
		{"CleanPath and a mount", "/api//items/x/../7", func(r chi.Router, m func(http.Handler) http.Handler) {
			r.Use(chimiddleware.CleanPath)
			r.Route("/api", func(r chi.Router) {
				r.Use(m)
				r.Get("/items/{id}", handler)
			})
		}, "/api/items/{id}"},
		{"mount with StripPrefix", "/_api/users/7", func(r chi.Router, m func(http.Handler) http.Handler) {
			r.Route("/_api", func(r chi.Router) {
				r.Use(chimiddleware.StripPrefix("/_api"), m)
				r.Get("/users/{id}", handler)
			})
		}, "/_api/users/{id}"},
		{"mount of a value with StripPrefix", "/t/acme/users/7", func(r chi.Router, m func(http.Handler) http.Handler) {
			r.Route("/t/{tenant:[a-z]{2,9}}", func(r chi.Router) {
				r.Use(chimiddleware.StripPrefix("/t/acme"), m)
				r.Get("/users/{id}", handler)
			})
		}, "/t/{tenant:[a-z]{2,9}}/users/{id}"},
		{"router in StripPrefix, wrapped", "/api/users/7", func(r chi.Router, m func(http.Handler) http.Handler) {
			sub := chi.NewRouter()
			sub.Get("/users/{id}", handler)
			r.Mount("/api", http.StripPrefix("/api", m(sub)))
		}, "/api/users/{id}"},
		{"router in StripPrefix, Use", "/api/users/7", func(r chi.Router, m func(http.Handler) http.Handler) {
			sub := chi.NewRouter()
			sub.Use(m)
			sub.Get("/users/{id}", handler)
			r.Mount("/api", http.StripPrefix("/api", sub))
		}, "/api/*"},
		{"router in StripPrefix, With", "/api/users/7", func(r chi.Router, m func(http.Handler) http.Handler) {
			sub := chi.NewRouter()
			sub.With(m).Get("/users/{id}", handler)
			r.Mount("/api", http.StripPrefix("/api", sub))
		}, "/api/users/{id}"},
		{"wildcard of With below a mount", "/api/files/a/b", func(r chi.Router, m func(http.Handler) http.Handler) {
			r.Route("/api", func(r chi.Router) { r.With(m).Get("/files/*", handler) })
		}, "/api/files/*"},
		{"With of a mount", "/api/users/7", func(r chi.Router, m func(http.Handler) http.Handler) {
			r.With(m).Route("/api", func(r chi.Router) { r.Get("/users/{id}", handler) })
		}, "/api/users/{id}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			r := chi.NewRouter()
			c.install(r, chigate.Middleware(f.guard(f.perRoute())))
			method, target, found := strings.Cut(c.target, " ")
			if !found {
				method, target = http.MethodGet, c.target
			}
			w := send(r, method, target)
			if (w.Code == 404) != strings.HasPrefix(c.name, "404") {
				t.Errorf("status %d", w.Code)
			}
			if !slices.Equal(f.keys, []string{c.want}) {
				t.Errorf("keys %q, want %q", f.keys, c.want)
			}
		})
	}
	t.Run("around the whole router", func(t *testing.T) {
		f := newFixture(t)
		r := chi.NewRouter()
		r.Get("/users/{id}", ok)
		if send(chigate.Middleware(f.guard(f.perRoute()))(r), "GET", "/users/1"); !slices.Equal(f.keys, []string{"/users/{id}"}) {
			t.Errorf("keys %q", f.keys)
		}
	})
	t.Run("outside chi", func(t *testing.T) {
		f := newFixture(t)
		if w := send(chigate.Middleware(f.guard(f.perRoute()))(handler), "GET", "/users/1"); w.Code != 200 || !slices.Equal(f.keys, []string{keyfunc.Unmatched}) {
			t.Errorf("status %d, keys %q", w.Code, f.keys)
		}
	})
	t.Run("seen by outer middleware", func(t *testing.T) {
		f := newFixture(t)
		var seen string
		r := chi.NewRouter()
		r.Use(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r); seen = r.Pattern })
		}, chigate.Middleware(f.guard(f.perRoute())))
		r.Get("/users/{id}", ok)
		send(r, "GET", "/users/1")
		if seen != "/users/{id}" {
			t.Errorf("outer middleware sees the pattern %q", seen)
		}
	})
}

func TestGinRefusesByConfig(t *testing.T) {
	f := newFixture(t)
	var answered, after int
	var seen []int
	engine := gin.New()
	engine.Use(func(c *gin.Context) {
		c.Next()
		seen = append(seen, nethttp.AdmissionFromContext(c.Request.Context()).Status())
		if nethttp.AdmissionFromContext(c.Request.Context()) == nil {
			t.Error("no decision outside")
		}
	})
	engine.Use(gingate.WithConfig(f.once(), gingate.Config{Refuse: func(c *gin.Context, a *nethttp.Admission) {
		answered++
		c.JSON(a.Status(), gin.H{"error": a.Violated()})
	}}), func(*gin.Context) { after++ })
	engine.GET("/users/:id", func(c *gin.Context) {
		if d := nethttp.AdmissionFromContext(c.Request.Context()).Decision(); !d.Allowed || d.Len() != 1 {
			t.Errorf("decision %+v", d)
		}
	})
	if w := send(engine, "GET", "/users/1"); w.Code != 200 || w.Header().Get("RateLimit") == "" {
		t.Errorf("first: %d %v", w.Code, w.Header())
	}
	w := send(engine, "GET", "/users/1")
	if w.Code != 429 || w.Body.String() != `{"error":["p"]}` || w.Header().Get("Retry-After") != "60" {
		t.Errorf("second: %d %s %v", w.Code, w.Body, w.Header())
	}
	if answered != 1 || after != 1 || !slices.Equal(seen, []int{0, 429}) {
		t.Errorf("answered %d times, %d requests passed, %d seen outside", answered, after, seen)
	}
}

// echo returns a refusal as an error to outer middleware and the central error handler.
func TestEchoReturnsRefusals(t *testing.T) {
	f := newFixture(t)
	e := echov4.New()
	var outer, central error
	e.HTTPErrorHandler = func(err error, c echov4.Context) {
		central = err
		if nethttp.AdmissionFromContext(c.Request().Context()) == nil {
			t.Error("the error handler has no decision")
		}
		e.DefaultHTTPErrorHandler(err, c)
	}
	e.Use(func(next echov4.HandlerFunc) echov4.HandlerFunc {
		return func(c echov4.Context) error { outer = next(c); return outer }
	})
	e.Use(echogate.WithConfig(f.once(), echogate.Config{Skipper: func(c echov4.Context) bool { return c.Path() == "/health" }}))
	e.GET("/users/:id", func(c echov4.Context) error {
		if a := nethttp.AdmissionFromContext(c.Request().Context()); !a.Allowed() {
			t.Error("no admission")
		}
		return c.NoContent(204)
	})
	e.GET("/health", func(c echov4.Context) error { return c.NoContent(204) })
	for _, want := range []int{204, 429} {
		if w := send(e, "GET", "/users/1"); w.Code != want {
			t.Errorf("status %d, want %d", w.Code, want)
		}
	}
	var he *echov4.HTTPError
	if !errors.As(outer, &he) || he.Code != 429 || central != outer {
		t.Errorf("outer middleware has %v, the error handler %v", outer, central)
	}
	if w := send(e, "GET", "/health"); w.Code != 204 || len(w.Header()) != 0 {
		t.Errorf("skipped: %d %v", w.Code, w.Header())
	}
	var _ echov4middleware.Skipper = echogate.Config{}.Skipper
}

func TestEchov5ReturnsRefusals(t *testing.T) {
	f := newFixture(t)
	e := echo.New()
	var outer, central error
	standard := echo.DefaultHTTPErrorHandler(false)
	e.HTTPErrorHandler = func(c *echo.Context, err error) {
		central = err
		if nethttp.AdmissionFromContext(c.Request().Context()) == nil {
			t.Error("the error handler has no decision")
		}
		standard(c, err)
	}
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error { outer = next(c); return outer }
	})
	e.Use(echov5gate.WithConfig(f.once(), echov5gate.Config{Skipper: func(c *echo.Context) bool { return c.Path() == "/health" }}))
	e.GET("/users/:id", func(c *echo.Context) error {
		if a := nethttp.AdmissionFromContext(c.Request().Context()); !a.Allowed() {
			t.Error("no admission")
		}
		return c.NoContent(204)
	})
	e.GET("/health", func(c *echo.Context) error { return c.NoContent(204) })
	for _, want := range []int{204, 429} {
		if w := send(e, "GET", "/users/1"); w.Code != want {
			t.Errorf("status %d, want %d", w.Code, want)
		}
	}
	var he *echo.HTTPError
	if !errors.As(outer, &he) || he.Code != 429 || central != outer {
		t.Errorf("outer middleware has %v, the error handler %v", outer, central)
	}
	if w := send(e, "GET", "/health"); w.Code != 204 || len(w.Header()) != 0 {
		t.Errorf("skipped: %d %v", w.Code, w.Header())
	}
	var _ echomiddleware.Skipper = echov5gate.Config{}.Skipper
}

// The error handler sees the cause of a refusal, and the client does not.
func TestEchoRefusalsWrapTheirCause(t *testing.T) {
	secret := errors.New("secret detail")
	failing := func(f *fixture) *nethttp.Guard {
		cfg := f.perRoute()
		only(one, keyed(func(*http.Request) (string, error) { return "", secret }))(f, &cfg)
		return f.guard(cfg)
	}
	f := newFixture(t)
	v4, v5 := echov4.New(), echo.New()
	v4.Logger.SetOutput(io.Discard)
	var seen []error
	v4.Use(func(next echov4.HandlerFunc) echov4.HandlerFunc {
		return func(c echov4.Context) error { err := next(c); seen = append(seen, err); return err }
	}, echogate.Middleware(failing(f)))
	v5.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error { err := next(c); seen = append(seen, err); return err }
	}, echov5gate.Middleware(failing(f)))
	v4.GET("/", echov4.WrapHandler(http.HandlerFunc(ok)))
	v5.GET("/", echo.WrapHandler(http.HandlerFunc(ok)))
	for _, h := range []http.Handler{v4, v5} {
		if w := send(h, "GET", "/"); w.Code != 500 || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	for _, err := range seen {
		if !errors.Is(err, secret) {
			t.Errorf("%v does not wrap its cause", err)
		}
	}
}

// A Refuse that calls Guard.Refuse makes echo's answer the same as that of the other frameworks.
func TestEchoMayRefuseByTheGuard(t *testing.T) {
	want := newFixture(t)
	h := want.once().Handler(http.HandlerFunc(ok))
	send(h, "GET", "/")
	refusal := send(h, "GET", "/")

	f := newFixture(t)
	g4, g5 := f.once(), newFixture(t).once()
	v4, v5 := echov4.New(), echo.New()
	v4.Use(echogate.WithConfig(g4, echogate.Config{Refuse: func(c echov4.Context, a *nethttp.Admission) error {
		g4.Refuse(c.Response(), c.Request(), a)
		return nil
	}}))
	v5.Use(echov5gate.WithConfig(g5, echov5gate.Config{Refuse: func(c *echo.Context, a *nethttp.Admission) error {
		g5.Refuse(c.Response(), c.Request(), a)
		return nil
	}}))
	v4.GET("/", echov4.WrapHandler(http.HandlerFunc(ok)))
	v5.GET("/", echo.WrapHandler(http.HandlerFunc(ok)))
	for _, e := range []http.Handler{v4, v5} {
		send(e, "GET", "/")
		w := send(e, "GET", "/")
		if w.Code != refusal.Code || w.Body.String() != refusal.Body.String() {
			t.Errorf("%d %s, want %s", w.Code, w.Body, refusal.Body)
		}
	}
}

// The framework's own logger records the status that the client got.
func TestLoggersSeeTheRefusal(t *testing.T) {
	each(t, func(t *testing.T, fw framework) {
		if fw.name == "net/http" {
			t.Skip("net/http has no logger")
		}
		f := newFixture(t)
		cfg := f.perRoute()
		only(core.PolicyConfig{Algorithm: core.DenyAll{}})(f, &cfg)
		f.serve(fw.build, &app{root: f.guard(cfg), routes: routes}, false)
		if got := f.ask("GET /users/1"); got.Status != 403 {
			t.Errorf("status %d", got.Status)
		}
		f.server.Close() // the logger writes after the response
		if !strings.Contains(f.logs.String(), "403") {
			t.Errorf("the log is %q", f.logs.String())
		}
	})
}
