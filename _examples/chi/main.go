// Chi is a small API on chi: a limit on all requests of a client address, one on the reports of
// each tenant, and a cap on the event streams that a tenant has open. Package demo has the guards.
//
//	go -C _examples/chi run .
//
// It keeps the limits in Redis at REDIS_URL, or in memory if that is not set, and serves on ADDR.
package main

import (
	"fmt"
	"log"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/headgate/headgate/_examples/demo"
	chigate "github.com/headgate/headgate/adapters/chi"
)

func main() {
	guards, err := demo.NewGuards()
	if err != nil {
		log.Fatal(err)
	}

	r := chi.NewRouter()
	r.Use(middleware.Recoverer, chigate.Middleware(guards.PerAddress))
	r.Get("/public", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	r.With(chigate.Middleware(guards.PerTenant)).Get("/t/{tenant}/reports", reports)
	r.With(chigate.Middleware(guards.Streams)).Get("/t/{tenant}/events", demo.Events)

	log.Fatal(demo.Serve(r))
}

func reports(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, demo.Report(r)) }
