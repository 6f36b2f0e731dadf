// Package gingate applies a nethttp.Guard to the routes of a gin engine.
//
// This program allows every client address a hundred requests at once, and a hundred more each
// minute:
//
//	package main
//
//	import (
//		"log"
//		"net/http"
//
//		"github.com/gin-gonic/gin"
//
//		gingate "github.com/headgate/headgate/adapters/gin"
//		"github.com/headgate/headgate/adapters/nethttp"
//		"github.com/headgate/headgate/core"
//		"github.com/headgate/headgate/keyfunc"
//	)
//
//	func main() {
//		gate, err := core.NewMemory(core.Config{})
//		if err != nil {
//			log.Fatal(err)
//		}
//		engine := gin.New()
//		engine.Use(gingate.Middleware(core.Must(
//			nethttp.Limit(gate, "api", core.PerMinute(100), keyfunc.RemoteIP()))))
//		engine.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello\n") })
//		log.Fatal(engine.Run(":8080"))
//	}
//
// gin knows the route before its middleware runs, so keyfunc.Route and keyfunc.PathValue work in
// Use of the engine and of any group. A path value is that of c.Param. It is unescaped unless the
// engine has UseRawPath without UnescapePathValues: then every spelling of a value is a key of its
// own.
//
// Requests without a route pass only through the middleware of the engine. Requests that gin
// redirects pass through none. Handlers read the outcome with
// nethttp.AdmissionFromContext(c.Request.Context()).
package gingate
