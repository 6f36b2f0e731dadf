// Package middleware compares what middleware costs that answers at once, and what it answers when it refuses.
package middleware

import (
	"fmt"
	"net/http"

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

	"github.com/headgate/headgate/lab/bench/internal/measure"
)

// build makes a server of one route, /users/{id}, in a framework, behind middleware that admits so many requests of a
// client.
type build func(limit int) (http.Handler, error)

// line is a line of the tables.
type line struct {
	framework, name string
	kind            measure.Kind
	build           build
}

// outOfReach is a limit that no run comes near.
const outOfReach = 1 << 40

func nothing(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

// server makes a framework's server, with the guard's middleware if it is not nil.
type server func(*nethttp.Guard) http.Handler

func plainServer(g *nethttp.Guard) http.Handler {
	mux := http.NewServeMux()
	var h http.Handler = http.HandlerFunc(nothing)
	if g != nil {
		h = g.Handler(h)
	}
	mux.Handle("GET /users/{id}", h)
	return mux
}

func chiServer(g *nethttp.Guard) http.Handler {
	r := chi.NewRouter()
	if g != nil {
		r.Use(chigate.Middleware(g))
	}
	r.Get("/users/{id}", nothing)
	return r
}

func ginServer(g *nethttp.Guard) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	if g != nil {
		engine.Use(gingate.Middleware(g))
	}
	engine.GET("/users/:id", gin.WrapF(nothing))
	return engine
}

func echov4Server(g *nethttp.Guard) http.Handler {
	e := echov4.New()
	if g != nil {
		e.Use(echogate.Middleware(g))
	}
	e.GET("/users/:id", echov4.WrapHandler(http.HandlerFunc(nothing)))
	return e
}

func echov5Server(g *nethttp.Guard) http.Handler {
	e := echo.New()
	if g != nil {
		e.Use(echov5gate.Middleware(g))
	}
	e.GET("/users/:id", echo.WrapHandler(http.HandlerFunc(nothing)))
	return e
}

// headgate is each framework bare, behind a guard that keeps no state, and behind one that counts addresses in memory.
func headgate() []line {
	var all []line
	for _, f := range []struct {
		name   string
		server server
	}{
		{"net/http", plainServer}, {"chi", chiServer}, {"gin", ginServer},
		{"echo v4", echov4Server}, {"echo v5", echov5Server},
	} {
		all = append(all,
			line{f.name, "bare", measure.Floor, func(int) (http.Handler, error) { return f.server(nil), nil }},
			line{f.name, "Headgate, Unlimited", measure.Ours, func(limit int) (http.Handler, error) {
				if limit < outOfReach {
					return nil, errUnlimited
				}
				return guarded(core.Unlimited{}, f.server)
			}},
			line{f.name, "Headgate, TokenBucket in memory", measure.Ours, func(limit int) (http.Handler, error) {
				return guarded(core.PerHour(int64(limit)), f.server)
			}},
		)
	}
	return all
}

func guarded(algorithm core.Algorithm, server server) (http.Handler, error) {
	gate, err := core.NewMemory(core.Config{})
	if err != nil {
		return nil, fmt.Errorf("make the gate: %w", err)
	}
	policy, err := core.NewPolicy(core.PolicyConfig{Name: "hello", Algorithm: algorithm})
	if err != nil {
		return nil, fmt.Errorf("make the policy: %w", err)
	}
	guard, err := nethttp.NewGuard(nethttp.Config{
		Gate: gate, Rules: []nethttp.Rule{{Policy: policy, Key: keyfunc.RemoteIP()}},
	})
	if err != nil {
		return nil, fmt.Errorf("make the guard: %w", err)
	}
	return server(guard), nil
}
