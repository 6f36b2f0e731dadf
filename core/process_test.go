package core_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
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
