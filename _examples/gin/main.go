// Gin is a small API on gin: a limit on everything, one on each tenant's reports, and a cap on how many streams of
// events a tenant has open. The guards are in the package demo.
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
