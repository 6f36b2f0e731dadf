// Outbound is four replicas of a program that share accounts at five providers, one of each kind. They
// ask for twice as much as the providers allow, which are used to their limits and refuse next to
// nothing.
//
//	go -C _examples/outbound run .
//
// At the end it prints a table of what the providers have seen. The replicas are goroutines that share
// their limits in memory. With -server they are processes that share a Redis of their own, which is
// killed, started again, paused and restarted meanwhile:
//
//	go -C _examples/outbound run . -server redis-server -for 1m
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/provider"
)

const replicas = 4

var (
	last    = flag.Duration("for", 10*time.Second, "how long the replicas ask")
	program = flag.String("server", "", "the program of a Redis that fails, such as redis-server")
	addr    = flag.String("replica", "", "the address of Redis, for a process that is a replica")
)

func main() {
	flag.Parse()
	run := compare
	if *addr != "" {
		run = runProcess
	}
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

// compare runs the providers and the replicas, and prints what came of it.
func compare() error {
	var providers []*provider.Provider
	var urls []string
	for _, k := range kinds {
		p := provider.New(k.provider)
		server := httptest.NewServer(p)
		defer server.Close()
		providers = append(providers, p)
		urls = append(urls, server.URL)
	}
	run := together
	if *program != "" {
		run = apart
	}
	sums, err := run(urls)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "provider\tallows\tused\trefused\tanswered\tbusy\tlost\tfailed\t")
	for i, k := range kinds {
		n := providers[i].Counts()
		all := providers[i].Arrivals()
		used := k.units(n, all) / (k.perSecond * all[len(all)-1].At.Sub(all[0].At).Seconds())
		refused := float64(n.Refused) / float64(len(all))
		fmt.Fprintf(table, "%s\t%s\t%.1f %%\t%.1f %%\t%d\t%d\t%d\t%d\t\n", k.name, k.allows, 100*used, 100*refused,
			sums[i].Answered, sums[i].Busy, sums[i].Lost, sums[i].Failed)
	}
	return table.Flush()
}

// together runs the replicas in this process. They share a Gate in memory.
func together(urls []string) ([]tally, error) {
	gate, err := core.NewMemory(core.Config{})
	if err != nil {
		return nil, err
	}
	results := make(chan result, replicas)
	for range replicas {
		go func() {
			tallies, err := runReplica(gate, urls, *last)
			results <- result{tallies, err}
		}()
	}
	sums, err := add(results)
	if err != nil {
		return nil, err
	}
	return sums, gate.Close(context.Background())
}

// apart runs each replica in a process of its own, beside a Redis that fails.
func apart(urls []string) ([]tally, error) {
	redis, err := startServer(*program)
	if err != nil {
		return nil, err
	}
	defer redis.kill()
	results := make(chan result, replicas)
	for range replicas {
		go func() {
			args := append([]string{"-replica", redis.addr, "-for", last.String()}, urls...)
			process := exec.Command(os.Args[0], args...)
			process.Stderr = os.Stderr
			var r result
			out, err := process.Output()
			if err == nil {
				err = json.Unmarshal(out, &r.tallies)
			}
			r.err = err
			results <- r
		}()
	}
	failed := make(chan error, 1)
	go func() { failed <- redis.fail(*last) }()
	sums, err := add(results)
	if err != nil {
		return nil, err
	}
	return sums, <-failed
}

// result is what came of one replica.
type result struct {
	tallies []tally // of each kind
	err     error
}

// add waits for the replicas, and adds up what came of them.
func add(results chan result) ([]tally, error) {
	sums := make([]tally, len(kinds))
	for range replicas {
		r := <-results
		if r.err != nil {
			return nil, r.err
		}
		for i, t := range r.tallies {
			sums[i].add(t)
		}
	}
	return sums, nil
}

// runProcess runs this process as one replica.
func runProcess() error {
	gate, err := newGate(*addr)
	if err != nil {
		return err
	}
	tallies, err := runReplica(gate, flag.Args(), *last)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(tallies); err != nil {
		return err
	}
	return gate.Close(context.Background())
}
