// Echo is a small API on echo v4: a limit on all requests of a client address, one on the reports
// of each tenant, and a cap on the event streams that a tenant has open. Package demo has the
// guards.
//
//	go -C _examples/echo run .
//
// It keeps the limits in Redis at REDIS_URL, or in memory if that is not set, and serves on ADDR.
package main

import (
	"log"
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/headgate/headgate/_examples/demo"
	echogate "github.com/headgate/headgate/adapters/echo"
)

func main() {
	guards, err := demo.NewGuards()
	if err != nil {
		log.Fatal(err)
	}

	e := echo.New()
	e.Use(middleware.Recover(), echogate.Middleware(guards.PerAddress))
	e.GET("/public", func(c echo.Context) error { return c.String(http.StatusOK, "hello\n") })
	e.GET("/t/:tenant/reports", reports, echogate.Middleware(guards.PerTenant))
	e.GET("/t/:tenant/events", echo.WrapHandler(http.HandlerFunc(demo.Events)), echogate.Middleware(guards.Streams))

	log.Fatal(demo.Serve(e))
}

func reports(c echo.Context) error {
	return c.String(http.StatusOK, demo.Report(c.Request()))
}
