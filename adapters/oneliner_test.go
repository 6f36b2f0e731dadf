package adapters_test

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	echov4 "github.com/labstack/echo/v4"
	"github.com/labstack/echo/v5"

	chigate "github.com/headgate/headgate/adapters/chi"
	echogate "github.com/headgate/headgate/adapters/echo"
	echov5gate "github.com/headgate/headgate/adapters/echov5"
	gingate "github.com/headgate/headgate/adapters/gin"
	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// The same line limits an API in every framework.
func TestOneLiner(t *testing.T) {
	for name, build := range map[string]func(gate *core.Gate) http.Handler{
		"net/http": func(gate *core.Gate) http.Handler {
			mux := http.NewServeMux()
			mux.HandleFunc("GET /", ok)
			return core.Must(nethttp.Limit(gate, "api", core.PerMinute(2), keyfunc.RemoteIP())).Handler(mux)
		},
		"chi": func(gate *core.Gate) http.Handler {
			r := chi.NewRouter()
			r.Use(chigate.Middleware(core.Must(nethttp.Limit(gate, "api", core.PerMinute(2), keyfunc.RemoteIP()))))
			r.Get("/", ok)
			return r
		},
		"gin": func(gate *core.Gate) http.Handler {
			r := gin.New()
			r.Use(gingate.Middleware(core.Must(nethttp.Limit(gate, "api", core.PerMinute(2), keyfunc.RemoteIP()))))
			r.GET("/", gin.WrapF(ok))
			return r
		},
		"echo": func(gate *core.Gate) http.Handler {
			r := echov4.New()
			r.Use(echogate.Middleware(core.Must(nethttp.Limit(gate, "api", core.PerMinute(2), keyfunc.RemoteIP()))))
			r.GET("/", echov4.WrapHandler(http.HandlerFunc(ok)))
			return r
		},
		"echov5": func(gate *core.Gate) http.Handler {
			r := echo.New()
			r.Use(echov5gate.Middleware(core.Must(nethttp.Limit(gate, "api", core.PerMinute(2), keyfunc.RemoteIP()))))
			r.GET("/", echo.WrapHandler(http.HandlerFunc(ok)))
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := build(newFixture(t).gate)
			for i, want := range []int{200, 200, 429} {
				w := send(h, "GET", "/")
				if w.Code != want || w.Header().Get("RateLimit-Policy") != `"api";q=2;w=60` {
					t.Errorf("request %d: status %d, want %d; %v", i, w.Code, want, w.Header())
				}
			}
		})
	}
}

// A Guard that was never made is reported when the middleware is built, not at a request.
func TestInvalidGuardPanicsAtConstruction(t *testing.T) {
	for name, build := range map[string]func(*nethttp.Guard){
		"chi":    func(g *nethttp.Guard) { chigate.Middleware(g) },
		"gin":    func(g *nethttp.Guard) { gingate.Middleware(g) },
		"echo":   func(g *nethttp.Guard) { echogate.Middleware(g) },
		"echov5": func(g *nethttp.Guard) { echov5gate.Middleware(g) },
	} {
		for kind, g := range map[string]*nethttp.Guard{"nil": nil, "zero": {}} {
			t.Run(name+", "+kind, func(t *testing.T) {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				build(g)
			})
		}
	}
}
