package llm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"

	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/report"
	"github.com/headgate/headgate/lab/bench/internal/server"
)

// Run measures the time to the first byte, and the memory of open streams.
func Run(ctx context.Context, plan measure.Plan, s *server.Server) ([]report.Table, error) {
	client := s.Client()
	defer func() { _ = client.Close() }()
	gate, err := core.NewRedis(client, core.Config{})
	if err != nil {
		return nil, fmt.Errorf("make the gate: %w", err)
	}
	defer func() { _ = gate.Close(context.Background()) }() // nothing is under way any more
	first, err := latency(ctx, plan, s, client, gate)
	if err != nil {
		return nil, err
	}
	open, err := memory(ctx, plan, client, gate)
	if err != nil {
		return nil, err
	}
	return []report.Table{first, open}, nil
}

// memoryRounds is how often memory is measured at most: it varies little.
const memoryRounds = 3

// memory holds streams open through each proxy in turn.
func memory(ctx context.Context, plan measure.Plan, client *redis.Client, gate *core.Gate) (report.Table, error) {
	streams := plan.Keys[1]
	t := report.Table{
		Title: fmt.Sprintf("Memory of %s open streams", report.Count(float64(streams))),
		Note: fmt.Sprintf("KiB of each stream after %d words and two garbage collections: of the live heap, and of the "+
			"goroutines' stacks. Client, proxy and upstream share the process, so only the difference is the Meter's.", words),
		Columns: []string{"", "heap", "added", "stacks", "added", "added in all"},
	}
	var heap, stacks [proxies][]float64
	for range min(plan.Rounds, memoryRounds) {
		for _, i := range []int{bare, metered} {
			grown, err := hold(ctx, client, gate, streams, i)
			if err != nil {
				return t, err
			}
			heap[i], stacks[i] = append(heap[i], grown.heap), append(stacks[i], grown.stacks)
		}
	}
	median := func(values []float64) float64 { return measure.Quantile(values, 0.5) }
	floor, own := size{median(heap[bare]), median(stacks[bare])}, size{median(heap[metered]), median(stacks[metered])}
	t.Add(contenders[bare].Label(), report.Number(floor.heap), "", report.Number(floor.stacks), "", "")
	t.Add(contenders[metered].Label(), report.Number(own.heap), report.Number(own.heap-floor.heap),
		report.Number(own.stacks), report.Number(own.stacks-floor.stacks),
		report.Number(own.heap-floor.heap+own.stacks-floor.stacks))
	return t, nil
}

// hold opens streams, and returns how much memory each of them adds.
func hold(ctx context.Context, client *redis.Client, gate *core.Gate, streams, proxy int) (size, error) {
	r, err := newRig(client, gate)
	defer r.close()
	if err != nil {
		return size{}, err
	}
	to := r.proxies[proxy]
	inner, leave := context.WithCancel(ctx)
	defer leave()
	responses, errs := make([]*http.Response, streams), make([]error, streams)
	before := footprint()
	var asking sync.WaitGroup
	for first := 0; first < streams; first += 50 { // all at once would not be answered in time
		for i := first; i < min(first+50, streams); i++ {
			asking.Go(func() {
				if responses[i], errs[i] = r.ask(inner, to, "open"); errs[i] == nil {
					_, errs[i] = io.CopyN(io.Discard, responses[i].Body, int64(words*len(chunk)-1))
				}
			})
		}
		asking.Wait()
	}
	after := footprint()
	leave()
	for _, response := range responses {
		if response != nil {
			_ = response.Body.Close() // its context has ended
		}
	}
	r.client.CloseIdleConnections()
	ended, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := errors.Join(append(errs, to.Shutdown(ended))...); err != nil {
		return size{}, fmt.Errorf("hold streams open: %w", err)
	}
	each := float64(streams)
	return size{(after.heap - before.heap) / each, (after.stacks - before.stacks) / each}, nil
}

// patience bounds the wait for the end of all streams, long enough for a busy machine.
const patience = 15 * time.Second

// size is memory in KiB.
type size struct{ heap, stacks float64 }

func footprint() size {
	runtime.GC()
	runtime.GC() // sync.Pool keeps what it has for one collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return size{float64(m.HeapAlloc) / 1024, float64(m.StackInuse) / 1024}
}
