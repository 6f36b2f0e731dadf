package gingate_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"

	gingate "github.com/headgate/headgate/adapters/gin"
	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

func ExampleMiddleware() {
	gate := core.Must(core.NewMemory(core.Config{}))
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.Use(gingate.Middleware(core.Must(
		nethttp.Limit(gate, "api", core.PerMinute(1), keyfunc.RemoteIP()))))
	engine.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello") })

	for range 2 {
		w := httptest.NewRecorder()
		engine.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 429
}

func ExampleWithConfig() {
	gate := core.Must(core.NewMemory(core.Config{}))
	api := core.Must(nethttp.Limit(gate, "api", core.DenyAll{}, keyfunc.RemoteIP()))
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.Use(gingate.WithConfig(api, gingate.Config{
		Refuse: func(c *gin.Context, a *nethttp.Admission) {
			c.JSON(a.Status(), gin.H{"violated": a.Violated()})
		},
	}))
	engine.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello") })

	w := httptest.NewRecorder()
	engine.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	fmt.Println(w.Code, w.Body)
	// Output: 403 {"violated":["api"]}
}
