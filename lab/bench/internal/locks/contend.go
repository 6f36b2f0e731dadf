package locks

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/server"
)

// Clients is how many clients want the one lock.
const Clients = 8

const (
	hold  = 500 * time.Microsecond
	think = 2 * time.Millisecond
	// grace is how long after a slice its last waiters may still wait.
	grace = 2 * time.Second
)

// contest is what one slice of clients that want one lock showed.
type contest struct {
	each     [Clients]int64 // acquisitions of each client
	handoffs []time.Duration
	again    int64 // acquisitions by the client that had the lock before
	failed   int64
	elapsed  time.Duration
	usage    server.Usage
	both     bool // two held at once
}

func (c *contest) acquired() float64 {
	var sum int64
	for _, n := range c.each {
		sum += n
	}
	return float64(sum)
}

// turn is a release: who it was by, and when it was called.
type turn struct {
	client int
	at     time.Time
}

// contend lets all clients want the lock for a slice. A hand-off is from the call of a release
// until the acquisition by another client has returned. A client that waits at the end has its turn
// too, which is not counted, so that the next slice finds the lock free. Only a client that still waits
// long after that is cancelled, because not every lock wakes all waiters.
func contend(ctx context.Context, s *server.Server, locks []acquire, slice time.Duration) (*contest, error) {
	before, err := s.Usage(ctx)
	if err != nil {
		return nil, err
	}
	var (
		c       contest
		mu      sync.Mutex
		running sync.WaitGroup
		last    atomic.Pointer[turn]
		inside  atomic.Int32
		stop    atomic.Bool
	)
	// A deadline instead would shorten the locks themselves, of a library that holds them no longer than that.
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	timer := time.AfterFunc(slice, func() { stop.Store(true) })
	defer timer.Stop()
	defer time.AfterFunc(slice+grace, cancel).Stop()
	for i, lock := range locks {
		running.Go(func() {
			for !stop.Load() && ctx.Err() == nil {
				release, err := lock(waiting, "contended")
				now := time.Now()
				if err != nil {
					mu.Lock()
					c.failed++
					mu.Unlock()
					continue
				}
				alone := inside.Add(1) == 1
				before := last.Load()
				counts := !stop.Load()
				time.Sleep(hold)
				inside.Add(-1)
				last.Store(&turn{i, time.Now()})
				err = release(context.WithoutCancel(ctx))
				mu.Lock()
				c.both = c.both || !alone
				switch {
				case err != nil:
					c.failed++
				case counts:
					c.each[i]++
					if before != nil && before.client == i {
						c.again++
					} else if before != nil {
						c.handoffs = append(c.handoffs, now.Sub(before.at))
					}
				}
				mu.Unlock()
				time.Sleep(think)
			}
		})
	}
	for !stop.Load() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	c.elapsed = time.Since(began)
	after, err := s.Usage(ctx)
	running.Wait()
	if err != nil {
		return nil, err
	}
	c.usage = server.Usage{CPU: after.CPU - before.CPU, Reads: after.Reads - before.Reads}
	return &c, ctx.Err()
}

// contests is all slices of one line, and the PINGs of a lone caller beside each.
type contests struct {
	measure.Contender
	slices []*contest
	pings  []measure.Sample
}

// median is that of a figure over the rounds.
func (c *contests) median(figure func(*contest) float64) float64 {
	values := make([]float64, len(c.slices))
	for i, s := range c.slices {
		values[i] = figure(s)
	}
	return measure.Quantile(values, 0.5)
}

// fairness is how often the client that got the lock most often did, over who got it least, in all rounds together.
func (c *contests) fairness() float64 {
	var each [Clients]float64
	for _, s := range c.slices {
		for i, n := range s.each {
			each[i] += float64(n)
		}
	}
	least, most := each[0], each[0]
	for _, n := range each {
		least, most = min(least, n), max(most, n)
	}
	return most / least
}

func (c *contests) faults() (failed int64, err error) {
	for _, s := range c.slices {
		failed += s.failed
		if s.both && c.Kind == measure.Ours {
			err = fmt.Errorf("%s: two clients held the lock at once", c.Name)
		}
	}
	return failed, err
}
