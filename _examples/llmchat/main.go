// Llmchat is a gateway for chats with a language model. At most 3 streams of a user and 20 of a
// tenant run at a time, 5 more of a user wait in a queue, and the requests of a user are limited by
// the minute. It has OpenAI's API of chat completions, in front of a built-in model with a fixed
// text, and a page that shows the streams.
//
//	cd _examples/llmchat && go run .
//
// Replicas with the same REDIS_URL share the caps. Without one a replica keeps them in memory. It
// serves on ADDR.
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
	gate, err := newGate(ctx, cfg)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cfg.addr)
	if err != nil {
		return err
	}
	gateway, err := newGateway(gate, cfg, listener.Addr().String())
	if err != nil {
		return err
	}
	server := &http.Server{Handler: gateway.handler(), ReadHeaderTimeout: 5 * time.Second}
	server.RegisterOnShutdown(gateway.endFeeds)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	fmt.Printf("Serving on http://%[1]s, which also has a page. Try:\n\n"+
		"  curl -iN http://%[1]s/v1/chat/completions -H 'Authorization: Bearer sk-1' -d '{\"stream\":true,\"messages\":[]}'\n\n", listener.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stop() // a second signal ends the program immediately
	return drain(gate, server, cfg.drain)
}

// drain refuses new and queued requests, so that they go to another replica, and lets running
// streams end.
func drain(gate *core.Gate, server *http.Server, patience time.Duration) error {
	log.Print("draining")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := gate.Close(ctx) // renews the leases of running streams, and cancels them at the deadline
	ctx, cancel = context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(ctx))
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
	gate, err := core.NewRedis(redis.NewClient(options), core.Config{Replicas: cfg.replicas, Timeout: cfg.timeout})
	if err != nil {
		return nil, err
	}
	if err := gate.Ping(ctx); err != nil {
		log.Print(err) // this replica caps its share of the streams until Redis answers
	}
	return gate, nil
}
