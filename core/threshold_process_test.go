package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

const (
	crossedKeys   = 300 // of the calendar between processes; a fifth of them otherwise
	crossedLimit  = 20
	crossedRounds = 2 // of each of 16 goroutines: 32 units of each key are asked for
)

// crossedLimits are limits whose period lasts as long as the test, whenever it runs.
var crossedLimits = map[string]core.Algorithm{
	"calendar":     core.Calendar{Limit: crossedLimit, Every: core.PeriodYear, In: time.UTC, Anchor: time.Date(2020, 6, 1, 0, 0, 0, 0, time.UTC)},
	"fixed window": core.FixedWindow{Limit: crossedLimit, Window: 9000 * 24 * time.Hour},
	"frozen":       frozen(crossedLimit),
}

// cross spends all units of n keys in several goroutines.
func cross(t *testing.T, g *core.Gate, p *core.Policy, n, goroutines int) {
	keys := make([]core.Key, n)
	for i := range keys {
		keys[i] = newKey(t, fmt.Sprint("k", i))
	}
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range crossedRounds {
				for _, i := range rand.Perm(n) {
					d, err := g.Decide(context.Background(), core.Charge{Policy: p, Key: keys[i], Cost: 1})
					if err != nil || d.Cause != nil {
						t.Error(err, d.Cause)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// crossings counts the events of thresholds by key and percent.
type crossings struct {
	mu  sync.Mutex
	all map[string]int
}

func (c *crossings) add(event string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = make(map[string]int)
	}
	c.all[event]++
}

func (c *crossings) observe(_ context.Context, e core.Event) {
	if at, ok := e.(*core.ThresholdEvent); ok {
		c.add(fmt.Sprint(at.Key, " ", at.Percent))
	}
}

// check reports each event of n keys that was not told exactly once.
func (c *crossings) check(t *testing.T, n int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range n {
		for _, percent := range []int{80, 90, 100} {
			event := fmt.Sprintf("{k%d} %d", i, percent)
			if times := c.all[event]; times != 1 {
				t.Errorf("%s %% was told %d times", event, times)
			}
			delete(c.all, event)
		}
	}
	if len(c.all) > 0 {
		t.Errorf("told beside them: %v", c.all)
	}
}

// keysOf returns how many keys the processes spend under a limit.
func keysOf(name string) int {
	if name == "calendar" {
		return crossedKeys
	}
	return crossedKeys / 5
}

// crossAndTell spends all units of the keys of a limit, and says which thresholds this process told.
func crossAndTell(t *testing.T, client redis.UniversalClient, name string) {
	var c crossings
	g := redisGate(t, client, core.Config{Prefix: prefixOf(name), Observe: c.observe})
	cross(t, g, watched(t, crossedLimits[name]), keysOf(name), 4)
	worked(t, g.Close(t.Context()))
	for event, n := range c.all {
		for range n {
			fmt.Println("told", event)
		}
	}
}

// prefixOf returns where Gates cross the thresholds of a limit.
func prefixOf(name string) string { return strings.ReplaceAll(name, " ", "-") }

// Four processes with four goroutines each tell each threshold of many keys once.
func TestProcessesTellThresholdsOnce(t *testing.T) {
	t.Parallel()
	children := startProcesses(t, redistest.Start(t))
	for name := range crossedLimits {
		t.Run(name, func(t *testing.T) {
			var c crossings
			sumOf(t, children, "cross "+name, func(line string) {
				if event, ok := strings.CutPrefix(line, "told "); ok {
					c.add(event)
				}
			})
			c.check(t, keysOf(name))
		})
	}
}

// Gates of one process that share a cluster, and goroutines that share a Gate in memory, do so too.
func TestGatesTellThresholdsOnce(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		for name, limit := range crossedLimits {
			t.Run(name, func(t *testing.T) {
				var c crossings
				g := memoryGate(t, core.Config{Observe: c.observe})
				cross(t, g, watched(t, limit), crossedKeys/5, 16)
				noError(t, g.Close(t.Context()))
				c.check(t, crossedKeys/5)
			})
		}
	})
	t.Run("cluster", func(t *testing.T) {
		cluster := redistest.StartCluster(t, 3)
		for name, limit := range crossedLimits {
			t.Run(name, func(t *testing.T) {
				var c crossings
				var wg sync.WaitGroup
				for range processes {
					g := redisGate(t, cluster.Client(t), core.Config{Prefix: prefixOf(name), Observe: c.observe})
					p := watched(t, limit)
					wg.Go(func() {
						cross(t, g, p, crossedKeys/5, 4)
						worked(t, g.Close(t.Context()))
					})
				}
				wg.Wait()
				c.check(t, crossedKeys/5)
			})
		}
	})
}

// Below its thresholds a policy sends what it sends without them.
func TestThresholdsTakeNoRoundTrip(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := new(told)
	g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, Observe: l.observe})
	c := core.Charge{Policy: watched(t, core.Calendar{Limit: 100, Every: core.PeriodYear, In: time.UTC}), Key: newKey(t, "k"), Cost: 1}
	decide(t, g, c, core.Charge{Policy: limited(t, "other", frozen(10)), Key: newKey(t, "k")})
	decide(t, g, c) // the server has learnt the script of one charge too
	scripts := func() int64 { return s.Calls(t, "evalsha", "eval") }
	before := scripts()
	for range 77 {
		decide(t, g, c)
	}
	l.want(t, g)
	if n := scripts() - before; n != 77 {
		t.Errorf("77 decisions below the thresholds ran %d scripts", n)
	}
	before = scripts()
	for range 10 {
		decide(t, g, c)
	}
	l.want(t, g, "p k 80%: 80 of 100")
	if n := scripts() - before; n != 12 { // a claim, a mark
		t.Errorf("10 decisions that reach one threshold ran %d scripts", n)
	}
}

// What a process claimed that died before it had told it is told by another when the claim ends.
func TestThresholdOfDeadProcessIsTold(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l, c := new(told), newClock()
	in, lines, kill := redistest.StartKillable(t, "TestDecidingProcess", "CORE_TEST_ADDR="+s.Addr, "CORE_TEST_PREFIX="+s.Prefix)
	fmt.Fprintln(in, "die")
	for lines.Scan() && lines.Text() != "tells" {
	}
	kill()
	gate := func() *core.Gate {
		g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, Observe: l.observe, Clock: c.Now})
		g.InjectClock(micros(c))
		return g
	}
	first, second := gate(), gate()
	charge := core.Charge{Policy: watched(t, frozen(10)), Key: newKey(t, "k"), Cost: core.NoCost}
	decide(t, first, charge)
	l.want(t, first)
	c.Advance(10*time.Second - time.Microsecond)
	decide(t, second, charge)
	l.want(t, second)
	c.Advance(time.Microsecond)
	decide(t, first, charge)
	l.want(t, first, "p k 80%: 8 of 10")
	c.Advance(10 * time.Second)
	decide(t, second, charge)
	l.want(t, second)
}

// claimAndHang claims a threshold, says so and waits until this process is killed.
func claimAndHang(t *testing.T, client redis.UniversalClient) {
	g := redisGate(t, client, core.Config{Prefix: os.Getenv("CORE_TEST_PREFIX"), Observe: func(_ context.Context, e core.Event) {
		if _, ok := e.(*core.ThresholdEvent); ok {
			fmt.Println("tells")
			select {}
		}
	}})
	g.InjectClock(micros(newClock()))
	decide(t, g, core.Charge{Policy: watched(t, frozen(10)), Key: newKey(t, "k"), Cost: 8})
	select {}
}
