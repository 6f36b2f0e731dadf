package core_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

func TestThresholdFaults(t *testing.T) {
	month := core.Calendar{Limit: 100, Every: core.PeriodMonth, In: time.UTC}
	for name, tt := range map[string]struct {
		algorithm core.Algorithm
		percents  []int
		want      string
	}{
		"zero":                {month, []int{0}, "core: PolicyConfig.Thresholds[0] is 0: it must be between 1 and 100"},
		"negative":            {month, []int{-1}, "core: PolicyConfig.Thresholds[0] is -1: it must be between 1 and 100"},
		"above the limit":     {month, []int{80, 200}, "core: PolicyConfig.Thresholds[1] is 200: it must be between 1 and 100"},
		"descending":          {month, []int{90, 80}, "core: PolicyConfig.Thresholds[1] is 80, after 90: they must ascend"},
		"twice":               {month, []int{80, 80}, "core: PolicyConfig.Thresholds[1] is 80, after 80: they must ascend"},
		"too many":            {month, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}, "core: PolicyConfig.Thresholds has 9 entries: it must have at most 8"},
		"token bucket":        {core.PerMinute(9), []int{80}, "core: PolicyConfig.Thresholds is set: PolicyConfig.Algorithm must be a Calendar"},
		"leaky bucket":        {core.LeakyBucket{Rate: 1, Per: time.Minute, Capacity: 9}, []int{80}, "core: PolicyConfig.Thresholds is set"},
		"window from first":   {core.FixedWindow{Limit: 9, Window: time.Hour, FromFirst: true}, []int{80}, "core: PolicyConfig.Thresholds is set"},
		"short window":        {core.FixedWindow{Limit: 9, Window: time.Second}, []int{80}, "core: PolicyConfig.Thresholds is set"},
		"sliding window":      {core.AnyHour(9), []int{80}, "core: PolicyConfig.Thresholds is set"},
		"block":               {core.Block{Strikes: 1, Within: time.Hour, For: time.Hour}, []int{80}, "core: PolicyConfig.Thresholds is set"},
		"unlimited":           {core.Unlimited{}, []int{80}, ""}, // for charges with limits of their own
		"nothing":             {core.DenyAll{}, []int{80}, ""},
		"no algorithm":        {nil, []int{0}, "core: PolicyConfig.Thresholds[0] is 0"},
		"calendar":            {month, []int{1, 100}, ""},
		"window":              {core.FixedWindow{Limit: 9, Window: time.Minute}, []int{80}, ""},
		"bucket of one grant": {frozen(9), []int{80, 90, 100}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := core.NewPolicy(core.PolicyConfig{Name: "p", Algorithm: tt.algorithm, Thresholds: tt.percents})
			if tt.want == "" && err != nil || tt.want != "" && (p != nil || err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// told collects the thresholds that a Gate tells.
type told struct {
	mu  sync.Mutex
	all []string
}

func (l *told) observe(_ context.Context, e core.Event) {
	at, ok := e.(*core.ThresholdEvent)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, fmt.Sprintf("%s %s %d%%: %d of %d", at.Policy.Name(), strings.Join(at.Key.Parts(), "/"), at.Percent, at.Used, at.Limit))
}

// want waits until the Gate has made its claims, and checks what it has told since the last call.
func (l *told) want(t *testing.T, g *core.Gate, want ...string) {
	t.Helper()
	g.AwaitTasks()
	l.check(t, want...)
}

// check checks what the Gate has told since the last call.
func (l *told) check(t *testing.T, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.all, want) {
		t.Errorf("told %q, want %q", l.all, want)
	}
	l.all = nil
}

// eachGateTold is eachGate with an observer.
func eachGateTold(t *testing.T, f func(t *testing.T, g *core.Gate, c *core.ManualClock, l *told)) {
	t.Helper()
	eachOpen(t, func(t *testing.T, c *core.ManualClock, open func(core.Config) *core.Gate) {
		l := new(told)
		f(t, open(core.Config{Observe: l.observe}), c, l)
	})
}

// watched is a policy with thresholds at 80, 90 and 100 %.
func watched(t testing.TB, a core.Algorithm) *core.Policy {
	t.Helper()
	return newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: a, Thresholds: []int{80, 90, 100}})
}

// Each threshold of a key is told once in a period, and again in the next one.
func TestThresholdsAreToldOncePerPeriod(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		algorithm core.Algorithm
		period    time.Duration // zero: there is one
	}{
		"calendar":     {core.Calendar{Limit: 10, Every: core.PeriodDay, In: time.UTC}, 24 * time.Hour},
		"fixed window": {core.FixedWindow{Limit: 10, Window: time.Hour}, time.Hour},
		"frozen":       {frozen(10), 0},
	} {
		t.Run(name, func(t *testing.T) {
			eachGateTold(t, func(t *testing.T, g *core.Gate, c *core.ManualClock, l *told) {
				p, key := watched(t, tt.algorithm), newKey(t, "a", "b")
				spend := func(cost int64) { decide(t, g, core.Charge{Policy: p, Key: key, Cost: cost}) }
				for range 2 {
					spend(7)
					l.want(t, g)
					spend(1)
					l.want(t, g, "p a/b 80%: 8 of 10")
					spend(core.NoCost)
					spend(9) // is denied
					l.want(t, g)
					spend(2)
					l.want(t, g, "p a/b 90%: 10 of 10", "p a/b 100%: 10 of 10")
					spend(1)
					l.want(t, g)
					if tt.period == 0 {
						return
					}
					c.Advance(tt.period)
				}
			})
		})
	}
}

// A key whose limit is raised tells the thresholds of the new limit.
func TestRaisedLimitHasItsOwnThresholds(t *testing.T) {
	t.Parallel()
	eachGateTold(t, func(t *testing.T, g *core.Gate, c *core.ManualClock, l *told) {
		p := newPolicy(t, core.PolicyConfig{
			Name: "p", Algorithm: frozen(10), Raisable: true, Thresholds: []int{80, 100},
		})
		key := newKey(t, "k")
		spend := func(cost int64) { decide(t, g, core.Charge{Policy: p, Key: key, Cost: cost}) }
		spend(10)
		l.want(t, g, "p k 80%: 10 of 10", "p k 100%: 10 of 10")
		adjust(t, g, core.Adjustment{ID: "a", Policy: p, Key: key, Raise: 10, Until: c.Now().Add(time.Hour)})
		spend(5)
		l.want(t, g)
		spend(1)
		l.want(t, g, "p k 80%: 16 of 20")
		spend(1)
		l.want(t, g)
		c.Advance(time.Hour)
		spend(core.NoCost)
		l.want(t, g)
	})
}

// Every way to spend finds a threshold, and reading does not.
func TestEveryDecisionFindsThresholds(t *testing.T) {
	t.Parallel()
	day := core.Calendar{Limit: 10, Every: core.PeriodDay, In: time.UTC}
	for name, spend := range map[string]func(g *core.Gate, c core.Charge) error{
		"Decide": func(g *core.Gate, c core.Charge) error { _, err := g.Decide(t.Context(), c); return err },
		"Charge": func(g *core.Gate, c core.Charge) error { _, _, err := g.Charge(t.Context(), c); return err },
		"Reserve": func(g *core.Gate, c core.Charge) error {
			_, _, err := g.Reserve(t.Context(), 0, c)
			return err
		},
		"SpendUpTo": func(g *core.Gate, c core.Charge) error {
			c.Cost = 1
			_, _, err := g.SpendUpTo(t.Context(), 8, c)
			return err
		},
		"Admit": func(g *core.Gate, c core.Charge) error {
			s, err := semaphore.New(g, semaphore.Config{Name: "s"})
			if err != nil {
				return err
			}
			l, _, err := s.Admit(t.Context(), semaphore.Request{Caps: []semaphore.Cap{{Key: c.Key, Limit: 1}}}, c)
			// The semaphore's subscription ends with the Gate.
			return errors.Join(err, l.Release(t.Context()), g.Close(t.Context()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachGateTold(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock, l *told) {
				c := core.Charge{Policy: watched(t, day), Key: newKey(t, "k"), Cost: 8}
				noError(t, spend(g, c))
				l.want(t, g, "p k 80%: 8 of 10")
			})
		})
	}
	t.Run("Peek", func(t *testing.T) {
		eachGateTold(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock, l *told) {
			key := newKey(t, "k")
			decide(t, g, core.Charge{Policy: limited(t, "p", day), Key: key, Cost: 8})
			c := core.Charge{Policy: watched(t, day), Key: key, Cost: core.NoCost}
			peek(t, g, c)
			l.want(t, g)
			decide(t, g, c)
			l.want(t, g, "p k 80%: 8 of 10")
		})
	})
}

// A Settle for more is told with the next decision, although that is denied.
func TestSettleForMoreIsToldWithTheNextDecision(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]core.Algorithm{
		"calendar":     core.Calendar{Limit: 10, Every: core.PeriodMonth, In: time.UTC},
		"fixed window": core.FixedWindow{Limit: 10, Window: 24 * time.Hour},
		"frozen":       frozen(10),
	} {
		t.Run(name, func(t *testing.T) {
			eachGateTold(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock, l *told) {
				c := core.Charge{Policy: watched(t, limit), Key: newKey(t, "k"), Cost: 1}
				r := charge(t, g, c)
				noError(t, r.Settle(t.Context(), 12))
				l.want(t, g)
				decide(t, g, c)
				l.want(t, g, "p k 80%: 12 of 10", "p k 90%: 12 of 10", "p k 100%: 12 of 10")
			})
		})
	}
}

// Policies, keys and limits of keys count apart, and a shadow counts too.
func TestThresholdsOfSeveralPolicies(t *testing.T) {
	t.Parallel()
	eachGateTold(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock, l *told) {
		of := func(name string, percent int, shadow bool) *core.Policy {
			return newPolicy(t, core.PolicyConfig{
				Name: name, Algorithm: frozen(10), Thresholds: []int{percent}, Shadow: shadow,
			})
		}
		half, most := of("half", 50, false), of("most", 90, true)
		limits := map[string]core.Algorithm{
			"other": core.AnyHour(10), "short": core.FixedWindow{Limit: 5, Window: time.Second}, "less": frozen(5), "none": core.Unlimited{},
		}
		for _, key := range []string{"a", "b", "other", "short", "less", "none"} {
			k, own := newKey(t, key), limits[key]
			decide(t, g,
				core.Charge{Policy: half, Key: k, Cost: 5, Limit: own}, core.Charge{Policy: most, Key: k, Cost: 5, Limit: own})
		}
		l.want(t, g, "half a 50%: 5 of 10", "half b 50%: 5 of 10", "half less 50%: 5 of 5", "most less 90%: 5 of 5")
	})
}

// Limits near the largest are compared exactly.
func TestThresholdOfLargeLimitIsExact(t *testing.T) {
	l := new(told)
	g := memoryGate(t, core.Config{Observe: l.observe})
	p := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: frozen(999_999_999_999_999), Thresholds: []int{33}})
	c := core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 329_999_999_999_999}
	decide(t, g, c)
	l.want(t, g)
	c.Cost = 1
	decide(t, g, c)
	l.want(t, g, "p k 33%: 330000000000000 of 999999999999999")
}

// onClaims does something before a client sends the command of a claim.
func onClaims(before func(args string) error) redis.Hook {
	return gatetest.OnCommands(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		if args := fmt.Sprint(cmds[0].Args()...); strings.Contains(args, ":claim") || strings.Contains(args, ":t80-") {
			if err := before(args); err != nil {
				return fail(cmds, err)
			}
		}
		return send()
	})
}

// A Gate that is closed while Redis takes no claims ends, and so does what it would tell.
func TestCloseEndsClaims(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		l, client, failed := new(told), s.Client(t), make(chan struct{}, 100)
		client.AddHook(onClaims(func(string) error {
			select {
			case failed <- struct{}{}:
			default:
			}
			return errors.New("claims fail")
		}))
		g := redisGate(t, client, core.Config{Prefix: s.Prefix, Observe: l.observe})
		decide(t, g, core.Charge{Policy: watched(t, frozen(10)), Key: newKey(t, "k"), Cost: 8})
		<-failed
		<-failed
		worked(t, g.Close(t.Context()))
		l.check(t)
	})
}

// While Redis is down nothing is told, and nothing is lost.
func TestThresholdsDuringOutage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := new(told)
	g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, Timeout: time.Second, Observe: l.observe})
	p, key := watched(t, frozen(10)), newKey(t, "k")
	decide(t, g, core.Charge{Policy: p, Key: key, Cost: 7})
	s.Stop()
	d, err := g.Decide(t.Context(), core.Charge{Policy: p, Key: key, Cost: 8})
	if err != nil || d.Source != core.SourceLocal || !d.Allowed {
		t.Errorf("while Redis is down: %v, %s", err, show(d))
	}
	l.check(t)
	s.Continue()
	for {
		d := gatetest.Must(g.Decide(t.Context(), core.Charge{Policy: p, Key: key, Cost: core.NoCost}))(t)
		if d.Source == core.SourceRedis {
			break
		}
	}
	l.want(t, g)
	decide(t, g, core.Charge{Policy: p, Key: key, Cost: 1})
	l.want(t, g, "p k 80%: 8 of 10")
}

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
	gatetest.Equal(t, scripts()-before, 77, "scripts of 77 decisions below the thresholds")
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
