// Outbound is two replicas of a program that share one account at a provider. They ask for twice as
// much as the provider allows, and it refuses nothing.
//
//	go -C _examples/outbound run .
//
// Every half second a line tells what the provider has answered, and what waits at each replica. The
// replicas share their limits in Redis at REDIS_URL, or in memory if that is not set. The provider is
// a part of the program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/headgate/headgate/internal/provider"
)

// These are what the provider allows. It counts in a bucket, of which a replica may use a part only:
// the rest is for requests that the network delays.
const (
	perSecond = 40
	bucket    = 20
	streams   = 10
)

func main() {
	last := flag.Duration("for", 10*time.Second, "how long the replicas ask")
	flag.Parse()
	if err := run(*last); err != nil {
		log.Fatal(err)
	}
}

func run(last time.Duration) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, last)
	defer cancel()

	p := provider.New(provider.Config{
		Form:    provider.OpenAI,
		Limits:  []provider.Limit{{Unit: provider.Requests, N: perSecond, Per: time.Second, Burst: bucket}},
		Streams: streams,
		Took:    100 * time.Millisecond,
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: p, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	a, b, err := newReplicas("http://" + listener.Addr().String())
	if err != nil {
		return err
	}
	fmt.Printf("The provider allows %d requests a second and %d at a time. The replicas make %d a second.\n",
		perSecond, streams, 2*perSecond)
	a.ask(ctx, perSecond)
	b.ask(ctx, perSecond)
	for ticker := time.NewTicker(500 * time.Millisecond); ctx.Err() == nil; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			ticker.Stop()
		}
		show(p, a, b)
	}
	a.running.Wait()
	b.running.Wait()
	show(p, a, b)
	err = errors.Join(a.gate.Close(context.Background()), b.gate.Close(context.Background()))
	// Shutdown waits for the requests that run.
	err = errors.Join(err, server.Shutdown(context.Background()))
	if s := <-served; !errors.Is(s, http.ErrServerClosed) {
		err = errors.Join(err, s)
	}
	return err
}

func show(p *provider.Provider, a, b *replica) {
	n := p.Counts()
	fmt.Printf("provider: %4d answered, %d refused, %2d run | replica a: %v | replica b: %v\n",
		n.Accepted, n.Refused, n.Open, a, b)
}
