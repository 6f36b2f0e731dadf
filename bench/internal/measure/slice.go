// Package measure times contenders in turns: each for a short slice, next to a slice of the PINGs that it is compared
// with, and all of them again in every round. What else the machine does falls on all alike, and a ratio is of two
// neighbours.
package measure

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/bench/internal/server"
)

// Where most of a worker's first calls take less than a microsecond, one in seldom is timed: to read the clock takes a part of
// that.
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

// Sample is what one slice showed.
type Sample struct {
	// Right, Wrong and Failed count the operations by their answers.
	Right, Wrong, Failed int64
	// Elapsed is how long they took together, and P50 and P99 how long single ones did, whatever the answer.
	Elapsed, P50, P99 time.Duration
	// Mallocs and Bytes are the allocations of the whole process, and Usage is what the servers did.
	Mallocs, Bytes uint64
	Usage          server.Usage
}

// Ops is the number of operations, whatever the answer.
func (s *Sample) Ops() float64 { return float64(s.Right + s.Wrong + s.Failed) }

// Rate is the operations in a second that got an answer: what fails is no work done.
func (s *Sample) Rate() float64 { return float64(s.Right+s.Wrong) / s.Elapsed.Seconds() }

// Meter reads the servers' usage. It may be nil where there is none.
type Meter func(context.Context) (server.Usage, error)

// Driver runs slices, and keeps the memory that they write times to, so that none of it is counted as a contender's.
type Driver struct {
	Meter Meter
	times [][]time.Duration
	all   []time.Duration
}

// Slice drives an operation for one slice.
func (d *Driver) Slice(ctx context.Context, load Load, do Do) (Sample, error) {
	for len(d.times) < load.Workers {
		d.times = append(d.times, make([]time.Duration, 0, 1<<13))
	}
	var s Sample
	var before server.Usage
	if d.Meter != nil {
		var err error
		if before, err = d.Meter(ctx); err != nil {
			return s, err
		}
	}
	var right, wrong, failed atomic.Int64
	var stop atomic.Bool
	var running sync.WaitGroup
	start := make(chan struct{})
	for w := range load.Workers {
		random := rand.New(rand.NewPCG(rand.Uint64(), uint64(w)))
		running.Go(func() {
			times := d.times[w][:0]
			var yes, no, bad int64
			<-start
			every, brief := 1, 0
			at := time.Now()
			for n := 0; !stop.Load(); n++ {
				timed := !load.Untimed && n%every == 0
				if timed && every > 1 {
					at = time.Now()
				}
				ok, err := do(ctx, w, random.IntN(load.Keys))
				if timed {
					now := time.Now()
					took := now.Sub(at)
					times, at = append(times, took), now
					if took < time.Microsecond {
						brief++
					}
					if len(times) == first && brief > first/2 {
						every = seldom
					}
				}
				switch {
				case err != nil:
					bad++
				case ok:
					yes++
				default:
					no++
				}
			}
			d.times[w] = times
			right.Add(yes)
			wrong.Add(no)
			failed.Add(bad)
		})
	}
	var memory, after runtime.MemStats
	runtime.ReadMemStats(&memory)
	began := time.Now()
	timer := time.AfterFunc(load.Slice, func() { stop.Store(true) })
	defer timer.Stop()
	close(start)
	running.Wait()
	s.Elapsed = time.Since(began)
	runtime.ReadMemStats(&after)
	s.Mallocs, s.Bytes = after.Mallocs-memory.Mallocs, after.TotalAlloc-memory.TotalAlloc
	s.Right, s.Wrong, s.Failed = right.Load(), wrong.Load(), failed.Load()
	if d.Meter != nil {
		usage, err := d.Meter(ctx)
		if err != nil {
			return s, err
		}
		s.Usage = server.Usage{CPU: usage.CPU - before.CPU, Reads: usage.Reads - before.Reads}
	}
	d.all = d.all[:0]
	for _, times := range d.times[:load.Workers] {
		d.all = append(d.all, times...)
	}
	s.P50, s.P99 = Quantile(d.all, 0.5), Quantile(d.all, 0.99)
	return s, ctx.Err()
}

// Quantile sorts the values and returns the one below which a part q of them lies, 0 if there are none.
func Quantile[T ~int64 | ~float64](values []T, q float64) T {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(int(q*float64(len(values))), len(values)-1)]
}
