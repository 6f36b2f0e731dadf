// Gin is a small API on gin: a limit on all requests of a client address, one on the reports of
// each tenant, and a cap on the event streams that a tenant has open. Package demo has the guards.
//
//	go -C _examples/gin run .
//
// It keeps the limits in Redis at REDIS_URL, or in memory if that is not set, and serves on ADDR.
package main

import (
	"log"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/_examples/demo"
	gingate "github.com/headgate/headgate/adapters/gin"
)

func main() {
	guards, err := demo.NewGuards()
	if err != nil {
		log.Fatal(err)
	}

	engine := gin.New()
	engine.Use(gin.Recovery(), gingate.Middleware(guards.PerAddress))
	engine.GET("/public", func(c *gin.Context) { c.String(http.StatusOK, "hello\n") })
	engine.GET("/t/:tenant/reports", gingate.Middleware(guards.PerTenant), reports)
	engine.GET("/t/:tenant/events", gingate.Middleware(guards.Streams), gin.WrapF(demo.Events))

	log.Fatal(demo.Serve(engine))
}

func reports(c *gin.Context) { c.String(http.StatusOK, demo.Report(c.Request)) }
