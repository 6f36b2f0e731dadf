// Nethttp is a small API on net/http: a limit on everything, one on each tenant's reports, and a cap on how many streams of
// events a tenant has open. The guards are in the package demo.
package main

import (
	"fmt"
	"log"
	"net/http"

	"github.com/headgate/headgate/_examples/demo"
	"github.com/headgate/headgate/adapters/nethttp"
)

func main() {
	guards, err := demo.NewGuards()
	if err != nil {
		log.Fatal(err)
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /public", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	mux.Handle("GET /t/{tenant}/reports", nethttp.Middleware(guards.PerTenant)(http.HandlerFunc(reports)))
	mux.Handle("GET /t/{tenant}/events", nethttp.Middleware(guards.Streams)(http.HandlerFunc(demo.Events)))
	everything := nethttp.Middleware(guards.PerAddress)(mux)

	log.Fatal(demo.Serve(everything))
}

func reports(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, demo.Report(r)) }
