package core_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
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
	for _, most := range []int{640, 6400} {
		c := newClock()
		g := memoryGate(t, core.Config{MaxKeys: most, Clock: c.Now})
		p := limited(t, "p", core.PerHour(100))
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
	if n := len(g.Values()); n != 0 {
		t.Errorf("%d keys remain", n)
	}
}

// A key is evicted alone, even if its hash collides with that of others.
func TestCollidingKeysAreEvictedSeparately(t *testing.T) {
	const most = 64 * 16
	c := newClock()
	g := memoryGate(t, core.Config{MaxKeys: most, Clock: c.Now})
	brief, lasting := limited(t, "brief", core.PerSecond(10)), limited(t, "lasting", core.PerHour(10))
	core.Collide(brief, lasting)
	keys := make([]core.Key, 64)
	for i := range keys {
		keys[i] = newKey(t, fmt.Sprint(i))
		decide(t, g, core.Charge{Policy: lasting, Key: keys[i], Cost: 10})
		decide(t, g, core.Charge{Policy: brief, Key: keys[i], Cost: 10})
	}
	c.Advance(2 * time.Second)
	flood := limited(t, "flood", core.PerHour(1000))
	for i := range 10_000 {
		decide(t, g, core.Charge{Policy: flood, Key: newKey(t, "flood", fmt.Sprint(i)), Cost: 1})
	}
	for i, key := range keys {
		if d := peek(t, g, core.Charge{Policy: lasting, Key: key, Cost: 1}); d.Allowed {
			t.Errorf("key %d was evicted: %s", i, show(d))
		}
	}
}
