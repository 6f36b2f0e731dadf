package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

func TestMemoryIsBounded(t *testing.T) {
	for _, most := range []int{64, 1000, 6400} {
		g := memoryGate(t, core.Config{MaxKeys: most, Clock: newClock().Now})
		c := core.Charge{Policy: limited(t, "p", core.PerHour(10)), Cost: 1}
		for i := range 20_000 {
			c.Key = newKey(t, fmt.Sprint(i))
			admits(t, g, c)
		}
		if n := len(g.Values()); n > most+63 || n < most/2 {
			t.Errorf("%d keys, want at most %d", n, most)
		}
	}
}

// A flood of fresh keys evicts no exhausted key, so that a flood buys no fresh bucket.
func TestFloodEvictsNoExhaustedKey(t *testing.T) {
	for most, limit := range map[int]core.Algorithm{640: frozen(100), 6400: core.PerHour(100)} {
		c := newClock()
		g := memoryGate(t, core.Config{MaxKeys: most, Clock: c.Now})
		p := limited(t, "p", limit)
		victim := func(i int) core.Charge {
			return core.Charge{Policy: p, Key: newKey(t, "victim", fmt.Sprint(i)), Cost: 100}
		}
		const victims = 50
		for i := range victims {
			decide(t, g, victim(i))
		}
		for i := range 50_000 {
			decide(t, g, core.Charge{Policy: p, Key: newKey(t, "flood", fmt.Sprint(i)), Cost: 1})
			c.Advance(100 * time.Microsecond)
		}
		for i := range victims {
			if d := peek(t, g, victim(i)); d.At(0).Remaining > 1 {
				t.Errorf("with %d keys, victim %d has %d units again", most, i, d.At(0).Remaining)
			}
		}
	}
}

func TestExpiredKeysAreEvictedFirst(t *testing.T) {
	const most = 64 * 100
	c := newClock()
	g := memoryGate(t, core.Config{MaxKeys: most, Clock: c.Now})
	brief, lasting := limited(t, "brief", core.PerSecond(10)), limited(t, "lasting", core.PerHour(10))
	lives := func(i int) core.Charge {
		return core.Charge{Policy: lasting, Key: newKey(t, "lasting", fmt.Sprint(i)), Cost: 1}
	}
	// Twice as many keys have expired as live. As many new keys need only the room of the expired
	// ones.
	for i := range most / 2 {
		decide(t, g, core.Charge{Policy: brief, Key: newKey(t, "brief", fmt.Sprint(i)), Cost: 10})
	}
	for i := range most / 4 {
		decide(t, g, lives(i))
	}
	c.Advance(time.Minute)
	for i := range most / 2 {
		decide(t, g, core.Charge{Policy: limited(t, "new", core.PerHour(1)), Key: newKey(t, "new", fmt.Sprint(i)), Cost: 1})
	}
	evicted := 0
	for i := range most / 4 {
		if d := peek(t, g, lives(i)); d.At(0).Used == 0 {
			evicted++
		}
	}
	// A shard may be fuller than others, and a sample may miss the expired keys.
	if evicted > most/4/10 {
		t.Errorf("%d of %d living keys were evicted", evicted, most/4)
	}
}

// A full shard evicts no debt that lives, whatever the limit of a Peek.
func TestPeekShortensNoDebt(t *testing.T) {
	c := newClock()
	g := memoryGate(t, core.Config{MaxKeys: 4 * 64, Clock: c.Now}) // all policies on a key are in one shard
	hour := core.FixedWindow{Limit: 10, Window: time.Hour}
	owes := core.Charge{Policy: limited(t, "owes", hour), Key: newKey(t, "k"), Cost: 10}
	settle(t, charge(t, g, owes), 100)
	c.Advance(3 * time.Hour)
	peek(t, g, core.Charge{Policy: owes.Policy, Key: owes.Key, Limit: core.FixedWindow{Limit: 500, Window: time.Hour}})
	for i := range 8 {
		admits(t, g, core.Charge{Policy: limited(t, fmt.Sprint("other", i), hour), Key: owes.Key})
	}
	wantUsed(t, g, owes.Policy, owes.Key, 70)
}

// Requests for keys in opposite orders do not deadlock, and all of them count exactly.
func TestMemoryCountsExactlyUnderConcurrency(t *testing.T) {
	const goroutines, each, burst = 64, 300, 5000
	g := memoryGate(t, core.Config{})
	p := limited(t, "p", frozen(burst))
	var keys [8]core.Key
	for i := range keys {
		keys[i] = newKey(t, fmt.Sprint(i))
	}
	var spent [len(keys)]atomic.Int64
	var denied atomic.Int64
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for j := range each {
				a, b := (i+j)%len(keys), (i*7+j*3+1)%len(keys)
				if a == b {
					b = (b + 1) % len(keys)
				}
				d, err := g.Decide(context.Background(), core.Charge{Policy: p, Key: keys[a], Cost: 1}, core.Charge{Policy: p, Key: keys[b], Cost: 2})
				switch {
				case err != nil:
					t.Error(err)
				case d.Allowed:
					spent[a].Add(1)
					spent[b].Add(2)
				default:
					denied.Add(1)
				}
			}
		})
	}
	wg.Wait()
	for i, k := range keys {
		if d := peek(t, g, core.Charge{Policy: p, Key: k, Cost: core.NoCost}); d.At(0).Used != spent[i].Load() {
			t.Errorf("key %d: %d used, %d admitted", i, d.At(0).Used, spent[i].Load())
		}
	}
	if denied.Load() == 0 {
		t.Error("nothing was denied")
	}
}

// Without a Clock a Gate in memory uses the system's clock.
func TestMemoryUsesTheSystemClock(t *testing.T) {
	g := memoryGate(t, core.Config{})
	c := core.Charge{Policy: limited(t, "p", core.TokenBucket{Rate: 1, Per: time.Microsecond, Burst: 1}), Key: newKey(t, "k"), Cost: 1}
	slow := core.Charge{Policy: limited(t, "slow", core.TokenBucket{Rate: 1, Per: time.Hour, Burst: 1}), Key: newKey(t, "k"), Cost: 1}
	decide(t, g, c)
	decide(t, g, slow)
	for d := decide(t, g, c); !d.Allowed; d = decide(t, g, c) {
	}
	denies(t, g, slow)
}

// Keys whose hashes collide are still different keys.
func TestCollidingKeysCountSeparately(t *testing.T) {
	c := newClock()
	g := memoryGate(t, core.Config{Clock: c.Now})
	key := newKey(t, "tenant")
	var charges []core.Charge
	for i := range int64(4) {
		p := limited(t, fmt.Sprint("p", i), core.PerHour(10+i))
		core.Collide(p)
		charges = append(charges, core.Charge{Policy: p, Key: key, Cost: 1 + i})
	}
	used := func(want ...int64) {
		t.Helper()
		for i, c := range charges {
			if d := peek(t, g, c); d.At(0).Used != want[i] {
				t.Errorf("%d used of policy %d, want %d", d.At(0).Used, i, want[i])
			}
		}
	}
	for _, c := range charges {
		decide(t, g, c)
	}
	decide(t, g, charges[:3]...)
	used(2, 4, 6, 4)
	for i, want := range [][]int64{{2, 0, 6, 4}, {2, 0, 6, 0}, {0, 0, 6, 0}, {0, 0, 0, 0}} {
		noError(t, g.Reset(t.Context(), core.Charge{Policy: charges[[]int{1, 3, 0, 2}[i]].Policy, Key: key}))
		used(want...)
	}
	gatetest.Equal(t, len(g.Values()), 0, "keys remain")
}

type brokenClock struct {
	*core.ManualClock
	broken bool
}

func (c *brokenClock) Now() time.Time {
	if c.broken {
		panic("broken clock")
	}
	return c.ManualClock.Now()
}

func TestMemorySurvivesPanicOfItsClock(t *testing.T) {
	clock := &brokenClock{ManualClock: newClock()}
	g := memoryGate(t, core.Config{Clock: clock.Now})
	p, q, k := limited(t, "p", core.PerSecond(1)), limited(t, "q", core.PerSecond(1)), newKey(t, "k")
	for _, charges := range [][]core.Charge{{{Policy: p, Key: k, Cost: core.NoCost}}, {{Policy: p, Key: k, Cost: core.NoCost}, {Policy: q, Key: k, Cost: core.NoCost}}} {
		clock.broken = true
		func() {
			defer func() {
				if recover() == nil {
					t.Error("Decide did not panic")
				}
			}()
			_, _ = g.Decide(t.Context(), charges...)
		}()
		clock.broken = false
		done := make(chan bool, 1)
		go func() {
			d, err := g.Decide(context.Background(), charges...)
			done <- err == nil && d.Allowed
		}()
		select {
		case ok := <-done:
			if !ok {
				t.Error("the decision after the panic was not allowed")
			}
		case <-time.After(longTimeout):
			t.Fatal("the decision after the panic blocks")
		}
	}
}

// An event tells what its decision was on, also if a cached denial answers.
func TestEventTellsTheCharges(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		var seen [][]core.Charge
		var sources []core.Source
		g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, Observe: func(_ context.Context, e core.Event) {
			if e, ok := e.(*core.DecisionEvent); ok {
				seen, sources = append(seen, slices.Clone(e.Charges)), append(sources, e.Decision.Source)
			}
		}})
		g.InjectClock(micros(newClock()))
		charge := core.Charge{Policy: limited(t, "p", frozen(1)), Key: newKey(t, "k"), Cost: 1}
		for range 3 {
			decide(t, g, charge)
		}
		if len(seen) != 3 || sources[2] != core.SourceCache {
			t.Fatalf("%d events, %v", len(seen), sources)
		}
		for _, charges := range seen {
			if len(charges) != 1 || charges[0] != charge {
				t.Errorf("an event tells of %v", charges)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		gatetest.Fails(t, gatetest.Err(g.Decide(ctx, charge)), "a caller with a cancelled context got an answer")
		worked(t, g.Close(t.Context()))
		gatetest.Fails(t, gatetest.Err(g.Decide(t.Context(), charge)), "a closed Gate decided")
	})
}

// exercise makes every goroutine of a Gate run: it holds slots, waits for them with and without
// success, and gives up.
func exercise(t *testing.T, g *core.Gate) {
	t.Helper()
	s := newSemaphore(t, g, semaphore.Config{TTL: time.Second})
	level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
	first := acquire(t, s, level)
	second := enqueue(t, s, level)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := s.Acquire(ctx, semaphore.Request{Caps: []semaphore.Cap{level}, MaxWait: semaphore.Forever, OnQueue: func(int) { cancel() }}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	release(t, first)
	release(t, <-second)
}

// After Close no goroutine, subscription or lease of the Gate remains, whatever goes on when Close
// is called.
func TestNothingRemainsAfterClose(t *testing.T) {
	for name, during := range map[string]func(t *testing.T, g *core.Gate) (after func()){
		"idle": func(*testing.T, *core.Gate) func() { return func() {} },
		"a caller waits": func(t *testing.T, g *core.Gate) func() {
			s := newSemaphore(t, g, semaphore.Config{TTL: time.Second})
			// No holder is about to release this level. Close does.
			level := semaphore.Cap{Key: newKey(t, "other"), Limit: 1}
			acquire(t, s, level)
			queued, waited := make(chan struct{}), make(chan error)
			var once sync.Once
			go func() {
				_, err := s.Acquire(context.Background(), semaphore.Request{Caps: []semaphore.Cap{level}, MaxWait: semaphore.Forever, OnQueue: func(int) { once.Do(func() { close(queued) }) }})
				waited <- err
			}()
			<-queued
			return func() {
				gatetest.Is(t, <-waited, core.ErrClosed, "waiter")
			}
		},
		"many callers acquire": func(t *testing.T, g *core.Gate) func() {
			s := newSemaphore(t, g, semaphore.Config{TTL: time.Second})
			level := semaphore.Cap{Key: newKey(t, "other"), Limit: 2}
			var finished sync.WaitGroup
			var started sync.WaitGroup
			for range 8 {
				started.Add(1)
				finished.Go(func() {
					markStarted := sync.OnceFunc(started.Done)
					for {
						l, err := s.Acquire(context.Background(), semaphore.Request{Caps: []semaphore.Cap{level}, MaxWait: semaphore.Forever})
						if errors.Is(err, core.ErrClosed) {
							return
						} else if err != nil {
							t.Error(err)
						}
						markStarted()
						_ = l.Release(context.Background()) // Close may have released it
					}
				})
			}
			started.Wait()
			return finished.Wait
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			client, admin := server.Client(t), server.Client(t)
			admin.Ping(t.Context())
			before := goleak.IgnoreCurrent()
			g := redisGate(t, client, core.Config{})
			exercise(t, g)
			after := during(t, g)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := g.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if keys := redistest.Keys(t, admin, "*"); len(keys) > 0 {
				t.Errorf("keys remain: %v", keys)
			}
			after()
			worked(t, goleak.Find(before))
			eventually(t, "no subscription remains", func() bool {
				return len(admin.PubSubChannels(t.Context(), "*").Val()) == 0
			})
		})
	}
}
