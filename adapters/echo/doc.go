// Package echogate applies a nethttp.Guard to the routes of an echo v4 server. The package for
// echo v5 is echov5gate.
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
//		"github.com/labstack/echo/v4"
//
//		echogate "github.com/headgate/headgate/adapters/echo"
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
//		e := echo.New()
//		e.Use(echogate.Middleware(core.Must(
//			nethttp.Limit(gate, "api", core.PerMinute(100), keyfunc.RemoteIP()))))
//		e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "hello\n") })
//		log.Fatal(e.Start(":8080"))
//	}
//
// echo knows the route in Use, in groups and at routes, so keyfunc.Route and keyfunc.PathValue work
// there. They do not work in Pre. Handlers read the outcome with
// nethttp.AdmissionFromContext(c.Request().Context()).
package echogate
