package llm

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"

	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/report"
	"github.com/headgate/headgate/lab/bench/internal/server"
)

// sliceFactor is how many slices of the plan one slice here lasts, because a stream takes much longer than a decision.
const sliceFactor = 15

// latency measures the time to the first byte through each proxy.
func latency(
	ctx context.Context, plan measure.Plan, s *server.Server, client *redis.Client, gate *core.Gate,
) (report.Table, error) {
	t := report.Table{
		Title: "First byte of a streamed chat",
		Note: fmt.Sprintf("Microseconds from the request to the first byte of the answer, "+
			"through an httputil.ReverseProxy that "+
			"keeps its connections and has read the body of the request. The Meter has a budget of tokens a minute and one of "+
			"money a month, a limit on requests a minute and a cap on streams, on Redis. What it "+
			"adds includes a round trip, as "+
			"the PING does; over a PING is what it adds beyond that. The two EVALSHA have about the "+
			"commands that a Meter needs, one before the request and one after the response, and "+
			"decide nothing. CPU is what redis-server takes for an answer to a lone caller. Client, proxy and upstream "+
			"share the process. A lone caller asks by turns and is answered at once "+
			"with %d words. %d callers ask one proxy for a slice of %v; their answers have a "+
			"word every %v, and they pause at random. Added is the "+
			"difference of the medians.",
			words, plan.Workers[1], sliceFactor*plan.Slice, wordPause),
		Columns: []string{"callers", "", "p50", "added", "over a PING", "p99", "added", "CPU"},
	}
	r, err := newRig(client, gate)
	defer r.close()
	if err != nil {
		return t, err
	}
	for _, workers := range []int{1, plan.Workers[1]} {
		var all [proxies]figures
		slice := r.turns
		if workers > 1 {
			slice = r.together
		}
		if _, err := slice(ctx, workers, plan.Slice); err != nil { // connections are made, and scripts are loaded
			return t, err
		}
		for range plan.Rounds {
			times, err := slice(ctx, workers, sliceFactor*plan.Slice)
			if err != nil {
				return t, err
			}
			for i := range all {
				all[i].add(times[i])
			}
		}
		base50, base99 := all[bare].medians()
		ping50, _ := all[pinged].medians()
		for i, proxy := range r.proxies {
			work := ""
			if workers == 1 {
				took, err := r.work(ctx, s, proxy, sliceFactor*plan.Slice)
				if err != nil {
					return t, err
				}
				work = report.Number(took)
			}
			p50, p99 := all[i].medians()
			added, over, added99 := report.Number(p50-base50), report.Number(p50-ping50), report.Number(p99-base99)
			if i == bare {
				added, added99 = "", ""
			}
			if i <= pinged {
				over = ""
			}
			t.Add(fmt.Sprint(workers), contenders[i].Label(),
				report.Number(p50), added, over, report.Number(p99), added99, work)
		}
	}
	return t, nil
}

// figures are the quantiles of each round, in microseconds.
type figures struct{ p50, p99 []float64 }

func (f *figures) add(times []time.Duration) {
	micros := func(q float64) float64 { return float64(measure.Quantile(times, q)) / float64(time.Microsecond) }
	f.p50, f.p99 = append(f.p50, micros(0.5)), append(f.p99, micros(0.99))
}

func (f *figures) medians() (p50, p99 float64) {
	return measure.Quantile(f.p50, 0.5), measure.Quantile(f.p99, 0.5)
}

// timed asks once, reads the whole answer, and returns how long the first byte took.
func (r *rig) timed(ctx context.Context, to *listener, pause string) (time.Duration, error) {
	began := time.Now()
	response, err := r.ask(ctx, to, pause)
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }() // it has been read
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0, fmt.Errorf("read the answer: %w", err)
	}
	return took, nil
}

// turns asks the proxies by turns, for as long as a slice for each. A bare one is asked after those that still talk to
// Redis when they have responded, for that slows the first byte of the next.
func (r *rig) turns(ctx context.Context, _ int, slice time.Duration) (times [proxies][]time.Duration, err error) {
	for end := time.Now().Add(proxies * slice); ; {
		for _, i := range []int{bare, pinged, metered, bare, scripted} {
			took, err := r.timed(ctx, r.proxies[i], "")
			if err != nil {
				return times, err
			}
			times[i] = append(times[i], took)
		}
		if time.Now().After(end) {
			return times, nil
		}
	}
}

// together has several callers ask each of the proxies for a slice.
func (r *rig) together(
	ctx context.Context, callers int, slice time.Duration,
) (times [proxies][]time.Duration, err error) {
	for i, to := range r.proxies {
		var mu sync.Mutex
		var running sync.WaitGroup
		end := time.Now().Add(slice)
		for range callers {
			running.Go(func() {
				for {
					time.Sleep(rand.N(words * wordPause)) // otherwise all callers ask at once
					took, fault := r.timed(ctx, to, "words")
					mu.Lock()
					times[i] = append(times[i], took)
					if fault != nil {
						err = fault
					}
					over := err != nil || time.Now().After(end)
					mu.Unlock()
					if over {
						return
					}
				}
			})
		}
		running.Wait()
		if err != nil {
			return times, err
		}
	}
	return times, nil
}

// work asks a proxy for a slice, alone, and returns what redis-server takes for each answer, in microseconds.
func (r *rig) work(ctx context.Context, s *server.Server, to *listener, slice time.Duration) (float64, error) {
	before, err := s.Usage(ctx)
	if err != nil {
		return 0, fmt.Errorf("measure the work of the server: %w", err)
	}
	n := 0
	for end := time.Now().Add(slice); n == 0 || time.Now().Before(end); n++ {
		if _, err := r.timed(ctx, to, ""); err != nil {
			return 0, err
		}
	}
	after, err := s.Usage(ctx)
	if err != nil {
		return 0, fmt.Errorf("measure the work of the server: %w", err)
	}
	return float64((after.CPU - before.CPU).Microseconds()) / float64(n), nil
}
