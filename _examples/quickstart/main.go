// Quickstart is an HTTP API with limits.
//
//	go -C _examples/quickstart run .
//
// It keeps the limits in Redis at REDIS_URL, which all processes with the same URL share, or in
// memory if that is not set. It serves on ADDR.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	gate, err := newGate(ctx)
	if err != nil {
		return err
	}
	api, err := newAPI(gate)
	if err != nil {
		return err
	}

	addr := os.Getenv("ADDR")
	if addr == "" {
		addr = "127.0.0.1:8080"
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: api, ReadHeaderTimeout: 5 * time.Second}
	shut := make(chan error, 1)
	go func() {
		<-ctx.Done()
		stop() // a second interrupt ends the program at once
		shut <- server.Shutdown(context.Background())
	}()
	fmt.Printf(`Serving on http://%[1]s. Try:

  for i in 1 2 3 4 5 6 7; do curl -i http://%[1]s/hello; done
  curl -i -H 'X-Api-Key: k1' -H 'X-Tenant: acme' http://%[1]s/reports

`, listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	// Shutdown returns when no handler runs, which would still use the Gate.
	return errors.Join(<-shut, gate.Close(context.Background()))
}

// newGate returns a Gate on Redis at REDIS_URL, or in memory if that is not set.
func newGate(ctx context.Context) (*core.Gate, error) {
	url := os.Getenv("REDIS_URL")
	if url == "" {
		log.Print("keeping limits in memory: REDIS_URL is not set")
		return core.NewMemory(core.Config{})
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	options.ContextTimeoutEnabled = true // a decision ends at its deadline
	options.DialerRetries = 1            // the gate has its own circuit breaker
	gate, err := core.NewRedis(redis.NewClient(options), core.Config{Replicas: 2})
	if err != nil {
		return nil, err
	}
	if err := gate.Ping(ctx); err != nil {
		log.Print(err) // the policies' failure modes decide until Redis answers
	}
	return gate, nil
}

func newAPI(gate *core.Gate) (http.Handler, error) {
	// The simplest case: each client address may send 5 requests at once, and one more every 2
	// seconds.
	bucket := core.TokenBucket{Rate: 30, Per: time.Minute, Burst: 5}
	perAddress, err := nethttp.Limit(gate, "hello", bucket, keyfunc.RemoteIP())
	if err != nil {
		return nil, err
	}

	// Two limits in one decision: if the tenant's is exhausted, nothing is spent of the key's.
	perKey, err := core.NewPolicy(core.PolicyConfig{Name: "key", Algorithm: core.PerMinute(10)})
	if err != nil {
		return nil, err
	}
	perTenant, err := core.NewPolicy(core.PolicyConfig{
		Name: "tenant", Algorithm: core.PerHour(100), OnFailure: core.FailClosed,
	})
	if err != nil {
		return nil, err
	}
	reports, err := nethttp.NewGuard(nethttp.Config{
		Gate: gate,
		// In a real API both headers come from what authentication has verified.
		Scope: keyfunc.Must(keyfunc.Header("X-Tenant")),
		Rules: []nethttp.Rule{
			{Policy: perTenant, Key: keyfunc.Must(keyfunc.Static("all"))},
			{Policy: perKey, Key: keyfunc.Must(keyfunc.Header("X-Api-Key"))},
		},
	})
	if err != nil {
		return nil, err
	}

	mux := http.NewServeMux()
	mux.Handle("GET /hello", perAddress.Handler(text("hello\n")))
	mux.Handle("GET /reports", reports.Handler(text("your report\n")))
	return mux, nil
}

func text(s string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s) })
}
