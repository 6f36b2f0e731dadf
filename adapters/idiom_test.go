package adapters_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	echov4 "github.com/labstack/echo/v4"
	echov4middleware "github.com/labstack/echo/v4/middleware"
	"github.com/labstack/echo/v5"
	echomiddleware "github.com/labstack/echo/v5/middleware"

	echogate "github.com/headgate/headgate/adapters/echo"
	echov5gate "github.com/headgate/headgate/adapters/echov5"
	gingate "github.com/headgate/headgate/adapters/gin"
	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
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

// echo returns a refusal as an error to outer middleware and the central error handler, which see its
// cause. The client does not.
func TestEchoReturnsRefusals(t *testing.T) {
	secret := errors.New("secret detail")
	limited := func() *nethttp.Guard {
		return newFixture(t).limit(one, keyed(func(r *http.Request) (string, error) {
			if r.Method == http.MethodHead {
				return "", secret
			}
			return keyfunc.RemoteIP()(r)
		}))
	}
	var outer, central error
	decided := func(r *http.Request) {
		if nethttp.AdmissionFromContext(r.Context()) == nil {
			t.Errorf("%s: no decision", r.URL.Path)
		}
	}
	v4 := echov4.New()
	v4.HTTPErrorHandler = func(err error, c echov4.Context) {
		central = err
		decided(c.Request())
		v4.DefaultHTTPErrorHandler(err, c)
	}
	v4.Use(func(next echov4.HandlerFunc) echov4.HandlerFunc {
		return func(c echov4.Context) error { outer = next(c); return outer }
	})
	var skip4 echov4middleware.Skipper = func(c echov4.Context) bool { return c.Path() == "/health" }
	v4.Use(echogate.WithConfig(limited(), echogate.Config{Skipper: skip4}))
	v4.Logger.SetOutput(io.Discard)
	v4.HEAD("/users/:id", echov4.NotFoundHandler)
	v4.GET("/users/:id", func(c echov4.Context) error { decided(c.Request()); return c.NoContent(204) })
	v4.GET("/health", func(c echov4.Context) error { return c.NoContent(204) })

	v5, standard := echo.New(), echo.DefaultHTTPErrorHandler(false)
	v5.HTTPErrorHandler = func(c *echo.Context, err error) {
		central = err
		decided(c.Request())
		standard(c, err)
	}
	v5.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error { outer = next(c); return outer }
	})
	var skip5 echomiddleware.Skipper = func(c *echo.Context) bool { return c.Path() == "/health" }
	v5.Use(echov5gate.WithConfig(limited(), echov5gate.Config{Skipper: skip5}))
	v5.HEAD("/users/:id", echo.WrapHandler(http.NotFoundHandler()))
	v5.GET("/users/:id", func(c *echo.Context) error { decided(c.Request()); return c.NoContent(204) })
	v5.GET("/health", func(c *echo.Context) error { return c.NoContent(204) })

	for name, e := range map[string]http.Handler{"echo": v4, "echov5": v5} {
		for _, want := range []int{204, 429} {
			if w := send(e, "GET", "/users/1"); w.Code != want {
				t.Errorf("%s: status %d, want %d", name, w.Code, want)
			}
		}
		var of4 *echov4.HTTPError
		var of5 *echo.HTTPError
		if !(errors.As(outer, &of4) && of4.Code == 429 || errors.As(outer, &of5) && of5.Code == 429) || central != outer {
			t.Errorf("%s: outer middleware has %v, the error handler %v", name, outer, central)
		}
		if w := send(e, "HEAD", "/users/1"); w.Code != 500 || strings.Contains(w.Body.String(), "secret") || !errors.Is(outer, secret) {
			t.Errorf("%s: %d %s, %v", name, w.Code, w.Body, outer)
		}
		if w := send(e, "GET", "/health"); w.Code != 204 || len(w.Header()) != 0 {
			t.Errorf("%s, skipped: %d %v", name, w.Code, w.Header())
		}
	}
}

// A Refuse that calls Guard.Refuse makes echo's answer the same as that of the other frameworks.
func TestEchoMayRefuseByTheGuard(t *testing.T) {
	h := newFixture(t).once().Handler(http.HandlerFunc(ok))
	send(h, "GET", "/")
	refusal := send(h, "GET", "/")
	g4, g5 := newFixture(t).once(), newFixture(t).once()
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

// A Guard or a Replay that was never made is reported when the middleware is built, not at a request.
func TestInvalidGuardPanicsAtConstruction(t *testing.T) {
	const guard, replay = "nethttp: the Guard is nil or zero: NewGuard, Limit, Concurrency, Queue or Quotas must make it",
		"nethttp: the Replay is nil or zero: NewReplay must make it"
	each(t, func(t *testing.T, fw framework) {
		for g, want := range map[nethttp.Admitter]string{
			(*nethttp.Guard)(nil): guard, new(nethttp.Guard): guard, (*nethttp.Replay)(nil): replay, new(nethttp.Replay): replay,
		} {
			func() {
				defer func() {
					if got := fmt.Sprint(recover()); got != want {
						t.Errorf("%T: panic %q, want %q", g, got, want)
					}
				}()
				fw.around(same, ok, g)
			}()
		}
	})
}

// A guarded request takes at most 8 allocations more than a bare one, of which 3 are for headers. In
// gin and echo it takes 2 more for the path values. gin's ResponseWriter takes one more, and echo v4
// makes one more for each middleware.
func TestAllocations(t *testing.T) {
	f := newFixture(t)
	policy := f.policy(core.PolicyConfig{Name: "p", Algorithm: core.PerHour(1 << 40)})
	guard := f.guard(nethttp.Config{Rules: []nethttp.Rule{{Policy: policy, Key: keyfunc.RemoteIP()}}})
	each(t, func(t *testing.T, fw framework) {
		of := func(g *nethttp.Guard) float64 {
			h := fw.bare(g, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
			return gatetest.Allocs(func() {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/users/1", nil))
			})
		}
		most := map[string]float64{"gin": 11, "echo": 11}[fw.name]
		if n := of(guard) - of(nil); n > max(8, most) {
			t.Errorf("%v allocations", n)
		}
	})
}
