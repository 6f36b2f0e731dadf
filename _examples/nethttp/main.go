// Nethttp is an API on net/http with two limits: each address has one on everything, and each tenant one on its reports. It keeps
// them in Redis at REDIS_URL, or in memory where that is not set, and serves on ADDR.
package main

import (
	"cmp"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	gate, err := newGate()
	if err != nil {
		return err
	}
	address, err := core.NewPolicy(core.PolicyConfig{Name: "address", Algorithm: core.TokenBucket{Rate: 60, Per: time.Minute, Burst: 20}})
	if err != nil {
		return err
	}
	tenant, err := core.NewPolicy(core.PolicyConfig{Name: "tenant", Algorithm: core.PerHour(3)})
	if err != nil {
		return err
	}
	perAddress, err := nethttp.NewGuard(nethttp.Config{Gate: gate, Rules: []nethttp.Rule{
		{Policy: address, Key: keyfunc.RemoteIP()},
	}})
	if err != nil {
		return err
	}
	perTenant, err := nethttp.NewGuard(nethttp.Config{Gate: gate, Rules: []nethttp.Rule{
		{Policy: tenant, Key: keyfunc.PathValue("tenant")}, // authorization in front compares it with who asks
	}})
	if err != nil {
		return err
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /public", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	mux.Handle("GET /t/{tenant}/reports", nethttp.Middleware(perTenant)(http.HandlerFunc(reports)))
	everything := nethttp.Middleware(perAddress)(mux)

	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080"))
	if err != nil {
		return err
	}
	fmt.Printf("Serving on http://%[1]s. Try: curl -i http://%[1]s/t/acme/reports\n", listener.Addr())
	return (&http.Server{Handler: everything, ReadHeaderTimeout: 5 * time.Second}).Serve(listener)
}

func reports(w http.ResponseWriter, r *http.Request) {
	decision, _ := nethttp.FromContext(r.Context())
	fmt.Fprintf(w, "a report of %s, %d more\n", r.PathValue("tenant"), decision.At(0).Remaining)
}

func newGate() (*core.Gate, error) {
	url := os.Getenv("REDIS_URL")
	if url == "" {
		return core.NewMemory(core.Config{})
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	options.DialerRetries = 1 // the gate has a circuit of its own
	return core.NewRedis(redis.NewClient(options), core.Config{})
}
