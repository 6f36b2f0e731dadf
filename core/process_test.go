package core_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

const (
	processes    = 4
	perProcess   = 16  // goroutines
	perGoroutine = 12  // decisions of a goroutine: two processes alone do not reach the limit
	processMax   = 500 // the limit
)

// unfreeable returns limits of n by every algorithm that free nothing before the test ends, whenever it
// runs. An aligned window is so long that the next one starts in 2043.
func unfreeable(n int64) []namedLimit {
	return []namedLimit{
		{"token bucket", core.TokenBucket{Rate: 1, Per: 24 * time.Hour, Burst: n}},
		{"token bucket with fractional microseconds", core.TokenBucket{Rate: 7, Per: 2 * 24 * time.Hour, Burst: n}},
		{"frozen", frozen(n)},
		{"leaky bucket", core.LeakyBucket{Rate: 1, Per: 24 * time.Hour, Capacity: n}},
		{"fixed window", core.FixedWindow{Limit: n, Window: 9000 * 24 * time.Hour}},
		{"window from first", core.FixedWindow{Limit: n, Window: 24 * time.Hour, FromFirst: true}},
		{"two counters", core.SlidingWindow{Limit: n, Window: 24 * time.Hour}},
		{"10 buckets", core.SlidingWindow{Limit: n, Window: 24 * time.Hour, Buckets: 10}},
		{"1000 buckets", core.SlidingWindow{Limit: n, Window: 24 * time.Hour, Buckets: 1000}},
		{"log", core.SlidingLog{Windows: []core.Window{{Limit: n, Width: 24 * time.Hour}}}},
		{"log of two windows", core.SlidingLog{Windows: []core.Window{{Limit: n, Width: time.Hour}, {Limit: n + 1, Width: 24 * time.Hour}}}},
		{"calendar", core.Calendar{Limit: n, Every: core.PeriodYear, In: time.UTC}},
	}
}

func TestProcessesAdmitTheLimitTogether(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	children := startProcesses(t, s)
	g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
	for i, limit := range unfreeable(processMax) {
		t.Run(limit.name, func(t *testing.T) {
			if sum := sumOf(t, children, strconv.Itoa(i), func(string) {}); sum != processMax {
				t.Errorf("%d admitted, the limit is %d", sum, processMax)
			}
			charge := core.Charge{Policy: limited(t, "p", limit.algorithm), Key: newKey(t, strconv.Itoa(i)), Cost: 1}
			if d := peek(t, g, charge); d.Allowed || d.At(0).Used != processMax {
				t.Error(show(d))
			}
		})
	}
}

// process is this test binary, running TestDecidingProcess.
type process struct {
	in  io.Writer
	out *bufio.Reader
}

// startProcesses starts processes that end with the test.
func startProcesses(t *testing.T, s *redistest.Server) (children []*process) {
	t.Helper()
	// t.Context ends before the cleanup tells the processes to end.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	for range processes {
		children = append(children, startProcess(ctx, t, s))
	}
	return children
}

// sumOf tells all processes to do something at the same time, and returns the sum of their answers. It
// passes on what they say before.
func sumOf(t *testing.T, children []*process, what string, said func(line string)) (sum int64) {
	t.Helper()
	// All processes are told before any is asked, so that none waits for another.
	for _, c := range children {
		gatetest.Must(fmt.Fprintln(c.in, what))(t)
	}
	for _, c := range children {
		n := gatetest.Must(c.answer(said))(t)
		sum += n
	}
	return sum
}

func startProcess(ctx context.Context, t *testing.T, s *redistest.Server) *process {
	t.Helper()
	cmd, in, out := redistest.StartSelf(ctx, t, "TestDecidingProcess", "CORE_TEST_ADDR="+s.Addr, "CORE_TEST_PREFIX="+s.Prefix)
	p := &process{in, bufio.NewReader(out)}
	t.Cleanup(func() {
		_ = in.Close() // ends it
		_, _ = io.Copy(io.Discard, p.out)
		if err := cmd.Wait(); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	return p
}

// answer reads how many decisions the process admitted. It passes on what the process says before, which
// may be of the test framework.
func (p *process) answer(said func(line string)) (int64, error) {
	for {
		line, err := p.out.ReadString('\n')
		if err != nil {
			return 0, err
		}
		if n, ok := strings.CutPrefix(line, "admitted "); ok {
			return strconv.ParseInt(strings.TrimSpace(n), 10, 64)
		}
		said(strings.TrimSpace(line))
	}
}

// TestDecidingProcess is the body of each process that startProcess starts.
func TestDecidingProcess(t *testing.T) {
	addr := os.Getenv("CORE_TEST_ADDR")
	if addr == "" {
		t.Skip("runs only as a process of other tests")
	}
	client := redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer func() { _ = client.Close() }()
	g := redisGate(t, client, core.Config{Prefix: os.Getenv("CORE_TEST_PREFIX")})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "cross "); ok {
			crossAndTell(t, client, name)
			fmt.Println("admitted 0")
			continue
		}
		switch lines.Text() {
		case "bulk":
			waitInBulk(t, g)
			fmt.Println("admitted", bulk)
			continue
		case "overload":
			fmt.Println("admitted", overload(t, g))
			continue
		case "seed":
			fmt.Println("admitted", seedAndSpend(t, g))
			continue
		case "die":
			claimAndHang(t, client)
		}
		i := gatetest.Must(strconv.Atoi(lines.Text()))(t)
		charge := core.Charge{Policy: limited(t, "p", unfreeable(processMax)[i].algorithm), Key: newKey(t, strconv.Itoa(i)), Cost: 1}
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range perProcess {
			wg.Go(func() {
				for range perGoroutine {
					d, err := g.Decide(context.Background(), charge)
					if err != nil || d.Cause != nil {
						t.Error(err, d.Cause)
						return
					}
					if d.Allowed {
						admitted.Add(1)
					}
				}
			})
		}
		wg.Wait()
		fmt.Println("admitted", admitted.Load())
	}
}

// budgets is how many keys processes seed at once.
func budgets() int {
	if long() {
		return 5000
	}
	return 200
}

// spentBefore is the ledger's figure of a budget.
func spentBefore(i int) int64 { return 100 + int64(i%50) }

// seeded returns a budget that processes seed with RaiseUsed, and one with a ledger.
func seeded(t testing.TB) (byHand, byLedger *core.Policy) {
	year := core.Calendar{Limit: 1_000_000, Every: core.PeriodYear, In: time.UTC}
	return limited(t, "by-hand", year), newPolicy(t, core.PolicyConfig{
		Name: "by-ledger", Algorithm: year, OnFailure: core.FailClosed,
		Ledger: func(_ context.Context, key core.Key, _ core.Span) (int64, error) {
			i, err := strconv.Atoi(key.String()[1 : len(key.String())-1])
			return spentBefore(i), err
		},
	})
}

// seedAndSpend seeds every budget by hand and spends one unit of each, in random order. It returns how
// many units it spent.
func seedAndSpend(t *testing.T, g *core.Gate) int64 {
	byHand, byLedger := seeded(t)
	var spent atomic.Int64
	var wg sync.WaitGroup
	order := rand.Perm(2 * budgets())
	for part := range perProcess {
		wg.Go(func() {
			for at := part; at < len(order); at += perProcess {
				i, ctx := order[at]/2, context.Background()
				key := newKey(t, strconv.Itoa(i))
				if order[at]%2 == 0 {
					c := core.Charge{Policy: byHand, Key: key}
					if _, err := g.RaiseUsed(ctx, c, spentBefore(i), time.Now()); err != nil {
						t.Error(err)
					}
					continue
				}
				for _, p := range []*core.Policy{byHand, byLedger} {
					d, err := g.Decide(ctx, core.Charge{Policy: p, Key: key, Cost: 1})
					if err != nil || d.Cause != nil || !d.Allowed {
						t.Error(show(d), err)
						return
					}
				}
				spent.Add(1)
			}
		})
	}
	wg.Wait()
	return spent.Load()
}

// When Redis has lost its data, processes under load seed the same budgets at once. No figure of the
// ledger counts twice, and none is missed.
func TestProcessesSeedTogether(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	children := append(startProcesses(t, s), startProcesses(t, s)...)
	g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
	byHand, byLedger := seeded(t)
	for range 2 {
		noError(t, s.Client(t).FlushAll(t.Context()).Err())
		each := int64(len(children))
		gatetest.Need(t, sumOf(t, children, "seed", func(string) {}), each*int64(budgets()), "units were spent")
		for i := range budgets() {
			key, before := newKey(t, strconv.Itoa(i)), spentBefore(i)
			if n := used(t, g, byHand, key); n < before || n > before+each {
				t.Errorf("budget %d: %d units in use, the ledger says %d, and %d were spent since", i, n, before, each)
			}
			if n := used(t, g, byLedger, key); n != before+each {
				t.Errorf("budget %d with a ledger: %d units in use, the ledger says %d, and %d were spent since", i, n, before, each)
			}
		}
	}
}

const (
	bulk      = 15 // calls of each process
	bulkRate  = 20 // a second
	bulkBurst = 4
)

func bulkLimiter(t *testing.T, g *core.Gate) *core.Limiter {
	t.Helper()
	p := limited(t, "bulk", core.TokenBucket{Rate: bulkRate, Per: time.Second, Burst: bulkBurst})
	return core.Must(core.NewLimiter(g, p))
}

// waitInBulk lets calls wait in the background, and says that they do.
func waitInBulk(t *testing.T, g *core.Gate) {
	l := bulkLimiter(t, g)
	ctx, cancel := context.WithTimeout(core.WithBackground(t.Context()), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for range bulk {
		all.Go(func() {
			if _, err := l.Wait(ctx, newKey(t, "account")); err != nil {
				t.Error(err)
			}
		})
	}
	fmt.Println("waits")
	all.Wait()
}

// overload asks for its part of three times the limit in the foreground, with a patience of half a second,
// and returns how many calls were admitted.
func overload(t *testing.T, g *core.Gate) (admitted int) {
	l := bulkLimiter(t, g)
	ticks := time.NewTicker(processes * time.Second / (3 * bulkRate))
	defer ticks.Stop()
	for range 10 * 3 * bulkRate / processes {
		<-ticks.C
		r, d, err := l.Reserve(t.Context(), time.Second/2, newKey(t, "account"), 1)
		if err != nil || d.Cause != nil {
			t.Error(err, d.Cause)
		}
		if r != nil {
			admitted++
		}
	}
	return admitted
}

// While four processes ask for three times the limit in the foreground, background calls are served within
// their patience.
func TestProcessesServeTheBackground(t *testing.T) {
	if !gatetest.Long() {
		t.Skip("takes 10 s; TestBackgroundDoesNotStarve is the same in memory")
	}
	t.Parallel()
	s := redistest.Start(t)
	g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
	l, key := bulkLimiter(t, g), newKey(t, "account")
	children := startProcesses(t, s)
	for _, c := range children {
		gatetest.Must(fmt.Fprintln(c.in, "overload"))(t)
	}
	ctx, cancel := context.WithTimeout(core.WithBackground(t.Context()), 8*time.Second)
	defer cancel()
	var all sync.WaitGroup
	waits := make([]time.Duration, 20)
	for i := range waits {
		all.Go(func() {
			start := time.Now()
			if _, err := l.Wait(ctx, key); err != nil {
				t.Error(err)
			}
			waits[i] = time.Since(start).Round(time.Millisecond)
		})
	}
	all.Wait()
	admitted := int64(0)
	for _, c := range children {
		n := gatetest.Must(c.answer(func(string) {}))(t)
		admitted += n
	}
	if offered := int64(10 * 3 * bulkRate); admitted > offered/2 {
		t.Errorf("%d of %d foreground calls were admitted, which is no overload", admitted, offered)
	}
	slices.Sort(waits)
	t.Logf("%d foreground calls were admitted; background calls with a patience of 8 s waited %v", admitted, waits)
}

// Four processes have 15 bulk calls each that wait at the limit of one account. What an interactive call
// reserves there meanwhile is the next token: nobody has reserved before it. The bulk calls take all the
// others. The log says how long it took.
func TestProcessesLetTheForegroundPass(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
	l, key := bulkLimiter(t, g), newKey(t, "account")
	children := startProcesses(t, s)
	for range bulkBurst {
		gatetest.Must(l.Allow(t.Context(), key))(t)
	}
	start := time.Now()
	for _, c := range children {
		gatetest.Must(fmt.Fprintln(c.in, "bulk"))(t)
	}
	var answers sync.WaitGroup
	waiting := make(chan string, len(children))
	for _, c := range children {
		answers.Go(func() {
			if n, err := c.answer(func(line string) { waiting <- line }); n != bulk || err != nil {
				t.Error(n, err)
			}
		})
	}
	var waits []time.Duration
	for range children {
		gatetest.Equal(t, <-waiting, "waits", "a process says")
		asked := time.Now()
		d, err := l.Wait(t.Context(), key)
		worked(t, errors.Join(err, d.Cause))
		if delay := d.At(0).Delay; delay > time.Second/bulkRate {
			t.Errorf("%v reserved before a foreground call", delay)
		}
		waits = append(waits, time.Since(asked))
	}
	answers.Wait()
	t.Logf("interactive calls waited %v, all %d calls took %v of %v", waits, len(children)*(bulk+1),
		time.Since(start), time.Duration(len(children)*(bulk+1))*time.Second/bulkRate)
}

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
