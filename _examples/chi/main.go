// Chi is a small API on chi: a limit on everything, one on each tenant's reports, and a cap on how many streams of
// events a tenant has open. The guards are in the package demo.
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
