// Package measure times contenders in turns: each for a short slice, next to the PINGs that it is
// compared with, and all of them again in every round. What else the machine does falls on all
// alike, and a ratio is of two neighbours.
package measure

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/lab/bench/internal/server"
)

// Where most of a worker's first calls take less than a microsecond, one in seldom is timed: to
// read the clock takes a part of that.
const first, seldom = 64, 32

// Do is one operation of a worker on one of the load's keys. It is right where the answer is the one that the load
// makes inevitable, such as an admission where the limit is out of reach.
type Do func(ctx context.Context, worker, key int) (right bool, err error)

// Load is how a contender is driven.
type Load struct {
	// Workers call at the same time, each as soon as its last call is answered.
	Workers int
	// Keys are drawn from this many, all with the same chance.
	Keys int
	// Slice is how long a contender is driven at a time.
	Slice time.Duration
	// Untimed leaves P50 and P99 out: reading the clock takes as long as what takes nanoseconds itself.
	Untimed bool
}

// byTurns says whether calls and PINGs alternate. What a lone caller waits for depends on when he calls, for processors
// fall asleep between his calls. What is too short to be timed is too short for this too.
func (l *Load) byTurns() bool { return l.Workers == 1 && !l.Untimed }

// Sample is what one slice showed.
type Sample struct {
	// Right, Wrong and Failed count the operations by their answers.
	Right, Wrong, Failed int64
	// Elapsed is how long they took together, and P50 and P99 how long single ones did, whatever the answer.
	Elapsed, P50, P99 time.Duration
	// Cost is what an operation took besides time.
	Cost Cost
}

// Cost is per operation.
type Cost struct {
	// Mallocs and Bytes are the allocations of the whole process.
	Mallocs, Bytes float64
	// CPU, in microseconds, and Reads are what the servers did.
	CPU, Reads float64
}

// Ops is the number of operations, whatever the answer.
func (s *Sample) Ops() float64 { return float64(s.Right + s.Wrong + s.Failed) }

// Rate is the operations in a second that got an answer: what fails is no work done.
func (s *Sample) Rate() float64 { return float64(s.Right+s.Wrong) / s.Elapsed.Seconds() }

// Meter reads the servers' usage. It may be nil where there is none.
type Meter func(context.Context) (server.Usage, error)

// Driver runs slices, and keeps the memory that they write times to, so that none of it is counted as a contender's.
type Driver struct {
	Meter   Meter
	tallies []tally
	all     []time.Duration
}

// tally is what one worker saw.
type tally struct {
	right, wrong, failed int64
	times                []time.Duration
}

func (t *tally) count(right bool, err error) {
	switch {
	case err != nil:
		t.failed++
	case right:
		t.right++
	default:
		t.wrong++
	}
}

// empty returns a number of tallies.
func (d *Driver) empty(n int) []tally {
	for len(d.tallies) < n {
		d.tallies = append(d.tallies, tally{times: make([]time.Duration, 0, 1<<13)})
	}
	for i := range d.tallies[:n] {
		d.tallies[i] = tally{times: d.tallies[i].times[:0]}
	}
	return d.tallies[:n]
}

// sample is what workers saw together in a time.
func (d *Driver) sample(elapsed time.Duration, tallies ...tally) Sample {
	s := Sample{Elapsed: elapsed}
	d.all = d.all[:0]
	for _, t := range tallies {
		s.Right += t.right
		s.Wrong += t.wrong
		s.Failed += t.failed
		d.all = append(d.all, t.times...)
	}
	s.P50, s.P99 = Quantile(d.all, 0.5), Quantile(d.all, 0.99)
	return s
}

func (d *Driver) usage(ctx context.Context) (server.Usage, error) {
	if d.Meter == nil {
		return server.Usage{}, nil
	}
	return d.Meter(ctx)
}

// Slice drives an operation for one slice.
func (d *Driver) Slice(ctx context.Context, load Load, do Do) (Sample, error) {
	tallies := d.empty(load.Workers)
	before, err := d.usage(ctx)
	if err != nil {
		return Sample{}, err
	}
	var stop atomic.Bool
	var running sync.WaitGroup
	start := make(chan struct{})
	for w := range tallies {
		random := rand.New(rand.NewPCG(rand.Uint64(), uint64(w)))
		running.Go(func() {
			// A copy, for neighbours in memory slow each other down.
			t := tallies[w]
			<-start
			every, brief := 1, 0
			at := time.Now()
			// A caller that begins late on a busy machine still calls once: no calls have no figures.
			for n := 0; n == 0 || !stop.Load(); n++ {
				timed := !load.Untimed && n%every == 0
				if timed && every > 1 {
					at = time.Now()
				}
				right, err := do(ctx, w, random.IntN(load.Keys))
				if timed {
					now := time.Now()
					took := now.Sub(at)
					t.times, at = append(t.times, took), now
					if took < time.Microsecond {
						brief++
					}
					if len(t.times) == first && brief > first/2 {
						every = seldom
					}
				}
				t.count(right, err)
			}
			tallies[w] = t
		})
	}
	var memory, grown runtime.MemStats
	runtime.ReadMemStats(&memory)
	began := time.Now()
	timer := time.AfterFunc(load.Slice, func() { stop.Store(true) })
	defer timer.Stop()
	close(start)
	running.Wait()
	elapsed := time.Since(began)
	runtime.ReadMemStats(&grown)
	after, err := d.usage(ctx)
	if err != nil {
		return Sample{}, err
	}
	s := d.sample(elapsed, tallies...)
	ops := s.Ops()
	s.Cost = Cost{
		Mallocs: float64(grown.Mallocs-memory.Mallocs) / ops, Bytes: float64(grown.TotalAlloc-memory.TotalAlloc) / ops,
		CPU: micros(after.CPU-before.CPU) / ops, Reads: float64(after.Reads-before.Reads) / ops,
	}
	return s, ctx.Err()
}

// turns drives one caller for a slice: a PING, then calls, and so on. One call, but many of those that take less than a
// microsecond, for the first after a PING finds the caches full of other things.
func (d *Driver) turns(ctx context.Context, load Load, brief bool, ping, do Do) (pings, calls Sample, err error) {
	many := 1
	if brief {
		many = seldom
	}
	tallies := d.empty(2)
	var pinging, calling time.Duration
	end := time.Now().Add(load.Slice)
	for more := true; more; more = time.Now().Before(end) {
		pinging += tallies[0].burst(ctx, load, 1, ping)
		calling += tallies[1].burst(ctx, load, many, do)
	}
	return d.sample(pinging, tallies[0]), d.sample(calling, tallies[1]), ctx.Err()
}

// burst does an operation several times, and returns how long they took. Which of them is timed is left to chance, for
// some contenders do more on every tenth call.
func (t *tally) burst(ctx context.Context, load Load, several int, do Do) time.Duration {
	timed := rand.IntN(several)
	var at time.Time
	began := time.Now()
	for n := range several {
		if n == timed {
			at = time.Now()
		}
		right, err := do(ctx, 0, rand.IntN(load.Keys))
		if n == timed {
			t.times = append(t.times, time.Since(at))
		}
		t.count(right, err)
	}
	return time.Since(began)
}

// Quantile sorts the values and returns the one below which a part q of them lies, 0 if there are none.
func Quantile[T ~int64 | ~float64](values []T, q float64) T {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(int(q*float64(len(values))), len(values)-1)]
}
