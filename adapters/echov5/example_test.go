package echov5gate_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v5"

	echov5gate "github.com/headgate/headgate/adapters/echov5"
	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

func ExampleMiddleware() {
	gate := core.Must(core.NewMemory(core.Config{}))
	e := echo.New()
	e.Use(echov5gate.Middleware(core.Must(
		nethttp.Limit(gate, "api", core.PerMinute(1), keyfunc.RemoteIP()))))
	e.GET("/", func(c *echo.Context) error { return c.String(http.StatusOK, "hello") })

	for range 2 {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 429
}

func ExampleWithConfig() {
	gate := core.Must(core.NewMemory(core.Config{}))
	api := core.Must(nethttp.Limit(gate, "api", core.DenyAll{}, keyfunc.RemoteIP()))
	e := echo.New()
	e.Use(echov5gate.WithConfig(api, echov5gate.Config{
		Skipper: func(c *echo.Context) bool { return c.Path() == "/health" },
		Refuse: func(c *echo.Context, a *nethttp.Admission) error {
			return c.JSON(a.Status(), map[string]any{"violated": a.Violated()})
		},
	}))
	e.GET("/", func(c *echo.Context) error { return c.String(http.StatusOK, "hello") })

	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	fmt.Print(w.Code, " ", w.Body)
	// Output: 403 {"violated":["api"]}
}
