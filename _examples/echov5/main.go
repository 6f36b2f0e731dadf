// Echov5 is a small API on echo v5: a limit on all requests of a client address, one on the reports
// of each tenant, and a cap on the event streams that a tenant has open. Package demo has the
// guards.
//
//	go -C _examples/echov5 run .
//
// It keeps the limits in Redis at REDIS_URL, or in memory if that is not set, and serves on ADDR.
package main

import (
	"log"
	"net/http"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/headgate/headgate/_examples/demo"
	echov5gate "github.com/headgate/headgate/adapters/echov5"
)

func main() {
	guards, err := demo.NewGuards()
	if err != nil {
		log.Fatal(err)
	}

	e := echo.New()
	e.Use(middleware.Recover(), echov5gate.Middleware(guards.PerAddress))
	e.GET("/public", func(c *echo.Context) error { return c.String(http.StatusOK, "hello\n") })
	e.GET("/t/:tenant/reports", reports, echov5gate.Middleware(guards.PerTenant))
	e.GET("/t/:tenant/events", echo.WrapHandler(http.HandlerFunc(demo.Events)), echov5gate.Middleware(guards.Streams))

	log.Fatal(demo.Serve(e))
}

func reports(c *echo.Context) error {
	return c.String(http.StatusOK, demo.Report(c.Request()))
}
