// Quotas is an API with three plans, whose tenants are upgraded and topped up while it runs.
//
//	go -C _examples/quotas run .
//
// It keeps counts and overrides in Redis at REDIS_URL, which all processes with the same URL share,
// or in memory if that is not set. It reads the plans from PLANS, and serves on ADDR.
package main

import (
	"cmp"
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
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	client, err := connect(os.Getenv("REDIS_URL"))
	if err != nil {
		return err
	}
	s, err := newService(client, cmp.Or(os.Getenv("PLANS"), "plans.yaml"), newDatabase(), 0)
	if err != nil {
		return err
	}
	defer s.book.Close()
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080"))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	shut := make(chan error, 1)
	go func() {
		<-ctx.Done()
		stop() // a second interrupt ends the program at once
		shut <- server.Shutdown(context.Background())
	}()
	fmt.Printf(`Serving on http://%[1]s. Try:

  for i in $(seq 21); do curl -s -o /dev/null -w '%%{http_code} ' -H 'X-Api-Key: acme-key' http://%[1]s/answer; done
  curl -H 'X-Api-Key: acme-key' http://%[1]s/usage
  curl -X PUT -H 'X-Api-Key: operator-key' http://%[1]s/tenants/acme/plan/pro
  curl -X PUT -H 'X-Api-Key: operator-key' 'http://%[1]s/tenants/acme/topups/invoice-1?units=500'
  curl -H 'X-Api-Key: acme-key' http://%[1]s/usage

`, listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	// Shutdown returns when no handler runs, which would still use the Gate.
	return errors.Join(<-shut, s.gate.Close(context.Background()))
}

// connect returns a client, or nil for an empty URL.
func connect(url string) (redis.UniversalClient, error) {
	if url == "" {
		log.Print("keeping counts in memory: REDIS_URL is not set")
		return nil, nil
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	options.ContextTimeoutEnabled = true // a decision ends at its deadline
	options.DialerRetries = 1            // the gate has its own circuit breaker
	return redis.NewClient(options), nil
}
