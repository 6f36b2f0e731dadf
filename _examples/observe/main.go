// Observe is an HTTP API with limits that an operator can watch.
//
//	go -C _examples/observe run .
//
// It serves the API on ADDR, and metrics for Prometheus at /metrics and a page for operators at
// /page/ of OPERATOR_ADDR, which is not for clients. Some tenants ask the API all the time, and one of
// them for more than it has. It logs what happens to stderr, and keeps the
// limits in Redis at REDIS_URL, or in memory if that is not set. Prometheus reads the metrics with
// --config.file=_examples/observe/prometheus.yml, and Grafana shows them once
// observe/prometheus/dashboard.json is imported there.
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

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/plans"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	watch, err := newObservers()
	if err != nil {
		return err
	}
	defer watch.close()
	client, err := connect(os.Getenv("REDIS_URL"))
	if err != nil {
		return err
	}
	gate, err := newGate(ctx, client, core.Config{Observe: watch.observe})
	if err != nil {
		return err
	}
	book, err := newBook(client, watch.observe)
	if err != nil {
		return err
	}
	defer book.Close()
	if err := watch.metrics.Watch(gate); err != nil {
		return err
	}
	api, err := newAPI(gate, book, watch.observe)
	if err != nil {
		return err
	}
	page, err := newPage(gate, book, api, watch)
	if err != nil {
		return err
	}
	clients, err := net.Listen("tcp", cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080"))
	if err != nil {
		return err
	}
	operators, err := net.Listen("tcp", cmp.Or(os.Getenv("OPERATOR_ADDR"), "127.0.0.1:8081"))
	if err != nil {
		return err
	}
	store := "memory, because REDIS_URL is not set"
	if client != nil {
		store = "Redis"
	}
	fmt.Printf(`Serving on http://%[1]s, with limits in %[3]s. Tenants ask it all the time. Try:

  curl -H 'X-Tenant: acme' http://%[1]s/reports
  curl http://%[2]s/metrics

and look up acme on http://%[2]s/page/

`, clients.Addr(), operators.Addr(), store)
	ctx, end := context.WithCancel(ctx) // the tenants leave when the servers end
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		traffic(ctx, "http://"+clients.Addr().String())
	}()
	defer func() { end(); <-asked }()
	return errors.Join(serve(ctx, map[net.Listener]http.Handler{
		clients: api, operators: watch.handler(page),
	}), gate.Close(context.Background()))
}

// serve serves until the context ends or a server fails.
func serve(ctx context.Context, handlers map[net.Listener]http.Handler) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error)
	for listener, handler := range handlers {
		server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
		go func() {
			err := server.Serve(listener)
			stop()
			if errors.Is(err, http.ErrServerClosed) {
				err = nil
			}
			ended <- err
		}()
		go func() {
			<-ctx.Done()
			ended <- server.Shutdown(context.Background())
		}()
	}
	var errs []error
	for range 2 * len(handlers) {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

// connect returns a client of the Redis at a URL, or nil if that is empty.
func connect(url string) (redis.UniversalClient, error) {
	if url == "" {
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

// newGate returns a Gate on Redis, or in memory without a client.
func newGate(ctx context.Context, client redis.UniversalClient, cfg core.Config) (*core.Gate, error) {
	if client == nil {
		return core.NewMemory(cfg)
	}
	gate, err := core.NewRedis(client, cfg)
	if err != nil {
		return nil, err
	}
	if err := gate.Ping(ctx); err != nil {
		log.Print(err) // the policies' failure modes decide until Redis answers
	}
	return gate, nil
}

// newBook returns the plans of the tenants. All have the same, whose limits are those of the policies,
// until an operator sets an override.
func newBook(client redis.UniversalClient, watch func(context.Context, core.Event)) (*plans.Book, error) {
	set, err := plans.NewSet(plans.SetConfig{Default: "free", Plans: map[string]plans.Plan{"free": {}}})
	if err != nil {
		return nil, err
	}
	return plans.New(plans.Config{Set: set, Client: client, Observe: watch})
}
