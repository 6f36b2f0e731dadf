// Package adapters_test plays the rows of one table on every framework, which must all answer
// alike.
package adapters_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
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
	"github.com/headgate/headgate/keyfunc"
)

// app is what every framework serves: all routes behind root, and those below /api/ also behind
// inner.
type app struct {
	root, inner *nethttp.Guard // inner may be nil
	routes      []route
	log         io.Writer // for the framework's own logger
}

type route struct {
	method, path string // in the notation of http.ServeMux
	handler      http.HandlerFunc
}

const mount = "/api"

func (a *app) split() (root, mounted []route) {
	for _, r := range a.routes {
		if strings.HasPrefix(r.path, mount+"/") {
			mounted = append(mounted, r)
		} else {
			root = append(root, r)
		}
	}
	return root, mounted
}

// framework builds an app with the framework's usual recovery, logger and error handler.
type framework struct {
	name  string
	build func(*app) http.Handler
	// around serves a handler at /users/{id} behind Admitters, the first of which is outermost, and
	// them inside a middleware.
	around func(outside, http.HandlerFunc, ...nethttp.Admitter) http.Handler
	// json reports whether a refusal is the framework's own JSON.
	json bool
	// clientIP is the framework's own client address with its defaults. configured is that address
	// as the framework documents it for proxies in 10.0.0.0/8, with the middleware to put outside.
	clientIP   func() keyfunc.Func
	configured func() (keyfunc.Func, func(http.Handler) http.Handler)
}

var proxies = []string{"10.0.0.0/8"}

var frameworks = []framework{
	{name: "net/http", build: buildNetHTTP, around: aroundNetHTTP},
	{name: "chi", build: buildChi, around: aroundChi, clientIP: chigate.ClientIP, configured: func() (keyfunc.Func, func(http.Handler) http.Handler) {
		return chigate.ClientIP(), chimiddleware.ClientIPFromXFF(proxies...)
	}},
	{name: "gin", build: buildGin, around: aroundGin, clientIP: func() keyfunc.Func { return gingate.ClientIP(gin.New()) },
		configured: func() (keyfunc.Func, func(http.Handler) http.Handler) {
			engine := gin.New()
			if err := engine.SetTrustedProxies(proxies); err != nil {
				panic(err)
			}
			return gingate.ClientIP(engine), nil
		}},
	{name: "echo", build: buildEcho, around: aroundEcho, json: true, clientIP: func() keyfunc.Func { return echogate.ClientIP(echov4.New()) },
		configured: func() (keyfunc.Func, func(http.Handler) http.Handler) {
			e := echov4.New()
			e.IPExtractor = echov4.ExtractIPFromXFFHeader(echov4.TrustLinkLocal(false), echov4.TrustLoopback(false))
			return echogate.ClientIP(e), nil
		}},
	{name: "echov5", build: buildEchov5, around: aroundEchov5, json: true, clientIP: func() keyfunc.Func { return echov5gate.ClientIP(echo.New()) },
		configured: func() (keyfunc.Func, func(http.Handler) http.Handler) {
			e := echo.New()
			e.IPExtractor = echo.ExtractIPFromXFFHeader(echo.TrustLinkLocal(false), echo.TrustLoopback(false))
			return echov5gate.ClientIP(e), nil
		}},
}

func each(t *testing.T, f func(*testing.T, framework)) {
	for _, fw := range frameworks {
		t.Run(fw.test(), func(t *testing.T) { f(t, fw) })
	}
}

func aroundNetHTTP(out outside, h http.HandlerFunc, all ...nethttp.Admitter) http.Handler {
	var next http.Handler = h
	for _, g := range slices.Backward(all) {
		next = g.Handler(next)
	}
	mux := http.NewServeMux()
	mux.Handle("/users/{id}", next)
	return out(mux)
}

// A router of chi makes a copy of its own, so what stands around its guards is middleware of that
// router.
func aroundChi(out outside, h http.HandlerFunc, all ...nethttp.Admitter) http.Handler {
	r := chi.NewRouter()
	r.Use(out)
	for _, g := range all {
		r.Use(chigate.Middleware(g))
	}
	r.HandleFunc("/users/{id}", h)
	return r
}

func aroundGin(out outside, h http.HandlerFunc, all ...nethttp.Admitter) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	for _, g := range all {
		e.Use(gingate.Middleware(g))
	}
	e.Any("/users/:id", gin.WrapF(h))
	return out(e)
}

func aroundEcho(out outside, h http.HandlerFunc, all ...nethttp.Admitter) http.Handler {
	e := echov4.New()
	for _, g := range all {
		e.Use(echogate.Middleware(g))
	}
	e.Any("/users/:id", echov4.WrapHandler(h))
	return out(e)
}

func aroundEchov5(out outside, h http.HandlerFunc, all ...nethttp.Admitter) http.Handler {
	e := echo.New()
	for _, g := range all {
		e.Use(echov5gate.Middleware(g))
	}
	e.Any("/users/:id", echo.WrapHandler(h))
	return out(e)
}

// http.ServeMux sets the route when it has chosen a handler. Therefore buildNetHTTP wraps each
// handler, and the mux for requests that match none.
func buildNetHTTP(a *app) http.Handler {
	guard := a.root.Handler
	mux := http.NewServeMux()
	for _, r := range a.routes {
		var handler http.Handler = r.handler
		if a.inner != nil && strings.HasPrefix(r.path, mount+"/") {
			handler = a.inner.Handler(handler)
		}
		mux.Handle(r.method+" "+r.path, guard(handler))
	}
	unmatched := guard(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p == http.ErrAbortHandler {
				panic(p)
			} else if p != nil {
				http.Error(w, "Internal Server Error", http.StatusInternalServerError)
			}
		}()
		if _, pattern := mux.Handler(r); pattern == "" {
			unmatched.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func buildChi(a *app) http.Handler {
	r := chi.NewRouter()
	logger := &chimiddleware.DefaultLogFormatter{Logger: log.New(a.log, "", 0), NoColor: true}
	r.Use(chimiddleware.RequestLogger(logger), chimiddleware.Recoverer, chimiddleware.GetHead, chigate.Middleware(a.root))
	root, mounted := a.split()
	for _, route := range root {
		r.Method(route.method, route.path, route.handler)
	}
	r.Route(mount, func(r chi.Router) {
		if a.inner != nil {
			r.Use(chigate.Middleware(a.inner))
		}
		for _, route := range mounted {
			r.Method(route.method, strings.TrimPrefix(route.path, mount), route.handler)
		}
	})
	return r
}

// colons converts a pattern to the notation of gin and echo.
func colons(path string) string { return strings.NewReplacer("{", ":", "}", "").Replace(path) }

func buildGin(a *app) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.Use(gin.LoggerWithWriter(a.log), gin.RecoveryWithWriter(a.log), gingate.Middleware(a.root))
	root, mounted := a.split()
	group := engine.Group(mount)
	if a.inner != nil {
		group.Use(gingate.Middleware(a.inner))
	}
	add := func(routes gin.IRoutes, r route, path string) {
		routes.Handle(r.method, colons(path), gin.WrapF(r.handler))
		if r.method == http.MethodGet {
			routes.HEAD(colons(path), gin.WrapF(r.handler))
		}
	}
	for _, r := range root {
		add(engine, r, r.path)
	}
	for _, r := range mounted {
		add(group, r, strings.TrimPrefix(r.path, mount))
	}
	return engine
}

func buildEcho(a *app) http.Handler {
	e := echov4.New()
	e.Logger.SetOutput(a.log)
	e.Use(echov4middleware.RequestLoggerWithConfig(echov4middleware.RequestLoggerConfig{
		LogStatus: true, HandleError: true,
		LogValuesFunc: func(_ echov4.Context, v echov4middleware.RequestLoggerValues) error {
			_, err := fmt.Fprintln(a.log, v.Status)
			return err
		},
	}), echov4middleware.Recover(), echogate.Middleware(a.root))
	root, mounted := a.split()
	group := e.Group(mount)
	if a.inner != nil {
		group.Use(echogate.Middleware(a.inner))
	}
	methods := func(r route) []string {
		if r.method == http.MethodGet {
			return []string{r.method, http.MethodHead}
		}
		return []string{r.method}
	}
	for _, r := range root {
		e.Match(methods(r), colons(r.path), echov4.WrapHandler(r.handler))
	}
	for _, r := range mounted {
		group.Match(methods(r), colons(strings.TrimPrefix(r.path, mount)), echov4.WrapHandler(r.handler))
	}
	return e
}

func buildEchov5(a *app) http.Handler {
	e := echo.New()
	e.Use(echomiddleware.RequestLoggerWithConfig(echomiddleware.RequestLoggerConfig{
		LogStatus: true, HandleError: true,
		LogValuesFunc: func(_ *echo.Context, v echomiddleware.RequestLoggerValues) error {
			_, err := fmt.Fprintln(a.log, v.Status)
			return err
		},
	}), echomiddleware.Recover(), echov5gate.Middleware(a.root))
	root, mounted := a.split()
	group := e.Group(mount)
	if a.inner != nil {
		group.Use(echov5gate.Middleware(a.inner))
	}
	add := func(add func(string, string, echo.HandlerFunc, ...echo.MiddlewareFunc) echo.RouteInfo, r route, path string) {
		add(r.method, colons(path), echo.WrapHandler(r.handler))
		if r.method == http.MethodGet {
			add(http.MethodHead, colons(path), echo.WrapHandler(r.handler))
		}
	}
	for _, r := range root {
		add(e.Add, r, r.path)
	}
	for _, r := range mounted {
		add(group.Add, r, strings.TrimPrefix(r.path, mount))
	}
	return e
}

// outside is a middleware around the guards.
type outside = func(http.Handler) http.Handler

func same(h http.Handler) http.Handler { return h }

// test returns the name of a framework in the names of tests.
func (fw framework) test() string { return strings.ReplaceAll(fw.name, "/", "-") }

// bare serves a handler behind a guard, or behind none if it is nil.
func (fw framework) bare(g *nethttp.Guard, h http.HandlerFunc) http.Handler {
	if g == nil {
		return fw.around(same, h)
	}
	return fw.around(same, h, g)
}
