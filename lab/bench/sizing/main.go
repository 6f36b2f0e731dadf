// Command sizing prints what one key of everything that Headgate keeps takes in Redis, and what one
// decision costs the server. docs/reference/sizing.md shows its tables.
//
//	go -C lab/bench run ./sizing
//
// It needs redis-server, version 7 or newer, in PATH.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"

	"github.com/headgate/headgate/lab/bench/internal/report"
	"github.com/headgate/headgate/lab/bench/internal/server"
)

// callers is how many share round trips.
const callers = 64

func main() {
	keys := flag.Int("keys", 20_000, "how many keys of each kind are filled, and how often each is called")
	flag.Parse()
	if err := run(context.Background(), *keys); err != nil {
		fmt.Fprintln(os.Stderr, "sizing:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, n int) error {
	s, err := server.Start(ctx)
	if err != nil {
		return err
	}
	defer s.Stop()
	client := s.Client()
	defer func() { _ = client.Close() }()
	gate, err := core.NewRedis(client, core.Config{DisableDenialCache: true, Timeout: time.Minute})
	if err != nil {
		return fmt.Errorf("make the gate: %w", err)
	}
	// The Gate is not closed: that would give back every slot, of a server that ends with this program.
	keys := make([]core.Key, n)
	for i := range keys {
		if keys[i], err = core.NewKey(fmt.Sprintf("user-%08d", i)); err != nil {
			return fmt.Errorf("make a key: %w", err)
		}
	}
	all, err := kinds(gate, client, keys)
	if err != nil {
		return err
	}
	// Connections are made, and scripts loaded, before anything is measured.
	if err := each(n, callers, func(int) error { return client.Ping(ctx).Err() }); err != nil {
		return err
	}
	t := report.Table{
		Title: "One key, and one decision",
		Note: fmt.Sprintf("Bytes of a key are those by which used_memory grows, over %s keys of 13 bytes. CPU is that of redis-server "+
			"(INFO cpu) for one decision, in microseconds: by one caller, alone in its round trip, and by %d callers of one process, "+
			"who share round trips, each on a key of its own. Sent and received are bytes between a process and the server for a "+
			"decision of the %d callers (INFO stats).", report.Count(float64(n)), callers, callers),
		Columns: []string{"", "bytes of a key", "CPU, alone", "CPU, shared", "sent", "received"},
	}
	for _, k := range all {
		row, err := measured(ctx, s, k, n)
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		t.Add(row...)
	}
	return t.Write(os.Stdout)
}

// measured fills the keys of a kind, and calls on them.
func measured(ctx context.Context, s *server.Server, k kind, n int) ([]string, error) {
	if err := s.Clear(ctx); err != nil {
		return nil, err
	}
	if k.fill != nil {
		if err := k.fill(ctx, 0); err != nil { // the script is loaded now
			return nil, err
		}
	}
	before, err := field(ctx, s, "memory", "used_memory")
	if err != nil {
		return nil, err
	}
	row := []string{k.name, "", "", "", "", ""}
	if k.fill != nil {
		if err := each(n-1, callers, func(i int) error { return k.fill(ctx, i+1) }); err != nil {
			return nil, err
		}
		after, err := field(ctx, s, "memory", "used_memory")
		if err != nil {
			return nil, err
		}
		row[1] = report.Count(float64(after-before) / float64(n-1))
	}
	if k.call == nil {
		return row, nil
	}
	alone, err := cost(ctx, s, n/4, 1, n, k.call)
	if err != nil {
		return nil, err
	}
	shared, err := cost(ctx, s, n, callers, n, k.call)
	if err != nil {
		return nil, err
	}
	row[2], row[3] = report.Number(alone.cpu), report.Number(shared.cpu)
	row[4], row[5] = report.Count(shared.sent), report.Count(shared.received)
	return row, nil
}

// spent is what a decision costs.
type spent struct{ cpu, sent, received float64 }

// cost calls on keys in random order.
func cost(ctx context.Context, s *server.Server, calls, workers, keys int, call func(context.Context, int) error) (c spent, err error) {
	read := func() (usage server.Usage, in, out int64, err error) {
		if in, err = field(ctx, s, "stats", "total_net_input_bytes"); err != nil {
			return usage, 0, 0, err
		}
		if out, err = field(ctx, s, "stats", "total_net_output_bytes"); err != nil {
			return usage, 0, 0, err
		}
		usage, err = s.Usage(ctx)
		return usage, in, out, err
	}
	before, in, out, err := read()
	if err != nil {
		return c, err
	}
	order := rand.New(rand.NewPCG(1, 2)).Perm(keys)
	if err := each(calls, workers, func(i int) error { return call(ctx, order[i%keys]) }); err != nil {
		return c, err
	}
	after, in2, out2, err := read()
	if err != nil {
		return c, err
	}
	n := float64(calls)
	return spent{
		cpu:  float64((after.CPU - before.CPU).Microseconds()) / n,
		sent: float64(in2-in) / n, received: float64(out2-out) / n,
	}, nil
}

func field(ctx context.Context, s *server.Server, section, name string) (int64, error) {
	info, err := s.Info(ctx, section)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(info[name], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("INFO %s: %s: %w", section, name, err)
	}
	return n, nil
}

// each calls f with 0 to n-1, by some workers, and returns the first error.
func each(n, workers int, f func(int) error) error {
	var next atomic.Int64
	var first error
	var once sync.Once
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					once.Do(func() { first = err })
					next.Store(int64(n))
				}
			}
		})
	}
	wg.Wait()
	return first
}
