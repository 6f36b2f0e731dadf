// Nethttp is a small API on net/http: a limit on all requests of a client address, one on the
// reports of each tenant, and a cap on the event streams that a tenant has open. Package demo has
// the guards.
//
//	go -C _examples/nethttp run .
//
// It keeps the limits in Redis at REDIS_URL, or in memory if that is not set, and serves on ADDR.
package main

import (
	"fmt"
	"log"
	"net/http"

	"github.com/headgate/headgate/_examples/demo"
)

func main() {
	guards, err := demo.NewGuards()
	if err != nil {
		log.Fatal(err)
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /public", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	mux.Handle("GET /t/{tenant}/reports", guards.PerTenant.Handler(http.HandlerFunc(reports)))
	mux.Handle("GET /t/{tenant}/events", guards.Streams.Handler(http.HandlerFunc(demo.Events)))
	everything := guards.PerAddress.Handler(mux)

	log.Fatal(demo.Serve(everything))
}

func reports(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, demo.Report(r)) }
