package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

const linearLimit = 10

// asked and told are the input and output of an operation in a history.
type (
	opInput struct {
		operation string // decide, peek, cancel or reset
		cost      int64
	}
	opOutput struct {
		allowed bool
		used    int64 // -1 if unknown
	}
)

// counter models every limit that time does not free: a number of units in use, which an operation
// reads and changes atomically.
var counter = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		used, in := state.(int64), input.(opInput)
		switch in.operation {
		case "reset":
			return true, int64(0)
		case "cancel":
			return true, used - in.cost
		}
		fits := used+in.cost <= linearLimit
		after := used
		if in.operation == "decide" && fits {
			after += in.cost
		}
		out := output.(opOutput)
		if out.used < 0 {
			out.used = after
		}
		return out == opOutput{fits, after}, after
	},
}

// recorder records the operations of a history as its goroutines see them.
type recorder struct {
	start   time.Time
	mu      sync.Mutex
	history []porcupine.Operation
}

func (r *recorder) do(goroutine int, in opInput, operation func() opOutput) {
	call := time.Since(r.start)
	out := operation()
	done := time.Since(r.start)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, porcupine.Operation{
		ClientId: goroutine, Input: in, Call: call.Nanoseconds(), Output: out, Return: done.Nanoseconds(),
	})
}

// record runs f in that many goroutines, which start together, and returns the history.
func record(goroutines int, f func(goroutine int, r *recorder)) []porcupine.Operation {
	r := &recorder{start: time.Now()}
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i := range goroutines {
		wg.Go(func() {
			<-begin
			f(i, r)
		})
	}
	close(begin)
	wg.Wait()
	return r.history
}

// judge reports whether a history is linearizable. It fails the test if finding out takes too long.
func linearizable(t *testing.T, history []porcupine.Operation) bool {
	t.Helper()
	result := porcupine.CheckOperationsTimeout(counter, history, time.Minute)
	if result == porcupine.Unknown {
		t.Fatal("not decided in a minute: the history is too long")
	}
	return result == porcupine.Ok
}

func TestOperationsAreLinearizable(t *testing.T) {
	t.Parallel()
	const histories, goroutines, each = 16, 6, 6
	run := func(t *testing.T, g *core.Gate) {
		seen := make(map[string]int)
		for _, limit := range unfreeable(linearLimit) {
			if bucket, ok := limit.algorithm.(core.TokenBucket); ok && bucket.Rate > 0 || limit.name == "leaky bucket" {
				continue // time frees parts of a unit, so that not all of every reservation is refunded
			}
			t.Run(limit.name, func(t *testing.T) {
				p := limited(t, "p", limit.algorithm)
				for i := range rounds(t, histories) {
					key := newKey(t, t.Name(), strconv.Itoa(i))
					// A reservation does not know that its key was reset, so no reservation spans a
					// reset.
					var reserved sync.RWMutex
					history := record(goroutines, func(goroutine int, r *recorder) {
						for range each {
							linearStep(t, g, core.Charge{Policy: p, Key: key, Cost: core.NoCost}, goroutine, r, &reserved)
						}
					})
					if t.Failed() {
						return
					}
					if !linearizable(t, history) {
						t.Fatalf("not linearizable: %v", history)
					}
					for _, o := range history {
						seen[fmt.Sprint(o.Input.(opInput).operation, " ", o.Output.(opOutput).allowed)]++
					}
				}
			})
		}
		for _, what := range []string{"decide true", "decide false", "peek true", "peek false", "cancel true", "reset true"} {
			if seen[what] == 0 && !t.Failed() {
				t.Errorf("no operation %q in %v", what, seen)
			}
		}
	}
	t.Run("memory", func(t *testing.T) { run(t, memoryGate(t, core.Config{})) })
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		for _, uncached := range []bool{true, false} {
			t.Run(map[bool]string{true: "no denial cache", false: "denial cache"}[uncached], func(t *testing.T) {
				run(t, redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, DisableDenialCache: uncached}))
			})
		}
	})
}

// linearStep runs one random operation, or reserves, decides and cancels.
func linearStep(t *testing.T, g *core.Gate, c core.Charge, goroutine int, r *recorder, reserved *sync.RWMutex) {
	ctx := context.Background()
	tell := func(d core.Decision, err error) opOutput {
		if err != nil || d.Cause != nil {
			t.Error(err, d.Cause)
			return opOutput{}
		}
		if !d.At(0).Known {
			return opOutput{d.Allowed, -1}
		}
		return opOutput{d.Allowed, d.At(0).Used}
	}
	done := func(err error) opOutput {
		worked(t, err)
		return opOutput{allowed: true}
	}
	spend := func() {
		r.do(goroutine, opInput{"decide", c.Cost}, func() opOutput { return tell(g.Decide(ctx, c)) })
	}
	c.Cost = 1 + rand.Int64N(4)
	switch n := rand.IntN(10); {
	case n < 4:
		spend()
	case n < 6:
		r.do(goroutine, opInput{"peek", c.Cost}, func() opOutput { return tell(g.Peek(ctx, c)) })
	case n < 7:
		reserved.Lock()
		defer reserved.Unlock()
		r.do(goroutine, opInput{"reset", 0}, func() opOutput { return done(g.Reset(ctx, c)) })
	default:
		reserved.RLock()
		defer reserved.RUnlock()
		var reservation *core.Reservation
		r.do(goroutine, opInput{"decide", c.Cost}, func() opOutput {
			var d core.Decision
			var err error
			reservation, d, err = g.Reserve(ctx, time.Hour, c)
			return tell(d, err)
		})
		spend()
		if reservation != nil {
			r.do(goroutine, opInput{"cancel", c.Cost}, func() opOutput { return done(reservation.Cancel(ctx)) })
		}
	}
}

// The check must catch a limiter that reads, adds and writes in three steps.
func TestRacyCounterIsCaught(t *testing.T) {
	t.Parallel()
	const most, goroutines, each = 200, 8, 4
	s := redistest.Real(t)
	client := s.Client(t, func(o *redis.Options) { o.PoolSize = goroutines })
	for i := range most {
		key := fmt.Sprint(s.Prefix, i)
		history := record(goroutines, func(goroutine int, r *recorder) {
			for range each {
				r.do(goroutine, opInput{"decide", 1}, func() opOutput {
					used, err := client.Get(context.Background(), key).Int64()
					if err != nil && err != redis.Nil {
						t.Error(err)
					}
					if used+1 > linearLimit {
						return opOutput{false, used}
					}
					worked(t, client.Set(context.Background(), key, used+1, time.Hour).Err())
					return opOutput{true, used + 1}
				})
			}
		})
		if t.Failed() {
			return
		}
		if !linearizable(t, history) {
			t.Logf("caught in history %d", i)
			return
		}
	}
	t.Errorf("%d histories of a racy counter all looked linearizable", most)
}
