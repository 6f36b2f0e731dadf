// Llmgateway is a gateway in front of any server that speaks OpenAI's or Anthropic's API. Tenants
// have budgets of tokens and money, caps on concurrent streams, and a queue, as plans.json says. A
// page for the operator shows them live.
//
//	go -C _examples/llmgateway run .
//
// Without UPSTREAM it answers from recorded transcripts, and needs neither a network nor a key.
// Replicas with the same REDIS_URL share the limits. Without one a replica keeps them in memory.
// The type config lists the other settings, which come from the environment.
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
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	cfg, err := readConfig()
	if err != nil {
		return err
	}
	plans, err := readPlans(cfg.plans)
	if err != nil {
		return err
	}
	gate, err := newGate(ctx, cfg)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cfg.addr)
	if err != nil {
		return fmt.Errorf("ADDR: %w", err)
	}
	operatorListener, err := net.Listen("tcp", cfg.operatorAddr)
	if err != nil {
		return fmt.Errorf("OPERATOR_ADDR: %w", err)
	}
	gateway, err := newGateway(gate, plans, cfg, listener.Addr().String())
	if err != nil {
		return err
	}
	feeds, endFeeds := context.WithCancel(context.Background())
	defer endFeeds()
	go gateway.board.run(feeds)

	api, operator := newServer(gateway.api()), newServer(gateway.operator())
	operator.RegisterOnShutdown(endFeeds)
	failed := make(chan error, 2)
	go func() { failed <- api.Serve(listener) }()
	go func() { failed <- operator.Serve(operatorListener) }()
	if cfg.upstream == nil {
		log.Print("answering from recorded transcripts: UPSTREAM is not set")
	}
	fmt.Printf("API on http://%s, the operator's page on http://%s\n",
		listener.Addr(), operatorListener.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stop() // a second signal ends the program immediately
	return drain(gate, cfg.drain, api, operator)
}

func newServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout: time.Minute, // of a request; responses may take longer
		IdleTimeout: 2 * time.Minute,
	}
}

// drain refuses new and queued requests, so that they go to another replica, and lets running
// streams end. The Gate closes before the servers, so that both are answered.
func drain(gate *core.Gate, patience time.Duration, servers ...*http.Server) error {
	log.Print("draining")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// Close renews the leases of running streams, and cancels them at the deadline.
	errs := []error{gate.Close(ctx)}
	ctx, cancel = context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, s := range servers {
		errs = append(errs, s.Shutdown(ctx))
	}
	return errors.Join(errs...)
}

func newGate(ctx context.Context, cfg config) (*core.Gate, error) {
	if cfg.redisURL == "" {
		log.Print("keeping limits in memory: REDIS_URL is not set")
		return core.NewMemory(core.Config{})
	}
	options, err := redis.ParseURL(cfg.redisURL)
	if err != nil {
		return nil, fmt.Errorf("REDIS_URL: %w", err)
	}
	options.ContextTimeoutEnabled = true // a decision ends at its deadline
	options.DialerRetries = 1            // the gate has its own circuit breaker
	gate, err := core.NewRedis(redis.NewClient(options), core.Config{
		Replicas: cfg.replicas, Timeout: cfg.timeout,
	})
	if err != nil {
		return nil, err
	}
	if err := gate.Ping(ctx); err != nil {
		log.Print(err) // until Redis answers every request is refused: spend is Closed
	}
	return gate, nil
}
