package core_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// epoch is where injected clocks start: November 2025, in microseconds.
const epoch = int64(1_763_700_000_123_457)

const (
	longTimeout = gatetest.LongTimeout
	busyTimeout = gatetest.BusyTimeout
)

var (
	eventually   = gatetest.Eventually
	long         = gatetest.Long
	newKey       = gatetest.Key
	newPolicy    = gatetest.Policy
	limited      = gatetest.Limited
	frozen       = gatetest.Frozen
	redisGate    = gatetest.Redis
	decide       = gatetest.Decide
	peek         = gatetest.Peek
	onScripts    = gatetest.OnScripts
	fail         = gatetest.Fail
	noError      = gatetest.NoError
	worked       = gatetest.Worked
	newSemaphore = gatetest.Semaphore
	acquire      = gatetest.Acquire
	enqueue      = gatetest.Enqueue
	release      = gatetest.Release
	heldFor      = gatetest.HeldFor
	used         = gatetest.Used
	wantUsed     = gatetest.WantUsed
	settle       = gatetest.Settle
	isOp         = gatetest.IsOp
	do           = gatetest.Do
)

func TestMain(m *testing.M) { redistest.Main(m) }

func newClock() *core.ManualClock { return core.NewManualClock(time.UnixMicro(epoch)) }

// micros returns the time of a clock in microseconds, as scripts and stores count it.
func micros(c *core.ManualClock) func() int64 {
	return func() int64 { return c.Now().UnixMicro() }
}

func memoryGate(t testing.TB, cfg core.Config) *core.Gate {
	t.Helper()
	cfg.Timeout = cmp.Or(cfg.Timeout, longTimeout)
	return gatetest.Memory(t, cfg)
}

// eachGate runs f on a Gate in memory and on one on every Redis, all on a clock of the test. They
// do not cache denials.
func eachGate(t *testing.T, f func(t *testing.T, g *core.Gate, c *core.ManualClock)) {
	t.Helper()
	eachOpen(t, func(t *testing.T, c *core.ManualClock, open func(core.Config) *core.Gate) {
		f(t, open(core.Config{}), c)
	})
}

// eachOpen is eachGate for Gates with a configuration.
func eachOpen(t *testing.T, f func(t *testing.T, c *core.ManualClock, open func(core.Config) *core.Gate)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		c := newClock()
		f(t, c, func(cfg core.Config) *core.Gate {
			cfg.Clock = c.Now
			return memoryGate(t, cfg)
		})
	})
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		c := newClock()
		f(t, c, func(cfg core.Config) *core.Gate {
			cfg.Prefix, cfg.DisableDenialCache, cfg.Clock = s.Prefix, true, c.Now
			g := redisGate(t, s.Client(t), cfg)
			g.InjectClock(micros(c))
			return g
		})
	})
}

// admits decides, and reports a denial.
func admits(t testing.TB, g *core.Gate, charges ...core.Charge) {
	t.Helper()
	if d := decide(t, g, charges...); !d.Allowed {
		t.Errorf("denied: %s", show(d))
	}
}

// denies decides, and reports an admission.
func denies(t testing.TB, g *core.Gate, charges ...core.Charge) {
	t.Helper()
	if d := decide(t, g, charges...); d.Allowed {
		t.Errorf("admitted: %s", show(d))
	}
}

// units returns the Cost of a charge of n units.
func units(n int64) int64 { return cmp.Or(n, core.NoCost) }

// atMost asks for as many units as the first charge costs.
func atMost(g *core.Gate, ctx context.Context, charges ...core.Charge) (int64, core.Decision, error) {
	ones := slices.Clone(charges)
	for i := range ones {
		ones[i].Cost = min(1, ones[i].Cost)
	}
	return g.SpendUpTo(ctx, max(0, charges[0].Cost), ones...)
}

// show formats a Decision without what differs between Gates: the source and the addresses of the
// policies.
func show(d core.Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "allowed %v, cause %v", d.Allowed, d.Cause)
	estimated := false // by what this process alone has seen
	for _, r := range d.Results() {
		estimated = estimated || r.KeptAfter() > 0
	}
	if !estimated {
		fmt.Fprintf(&b, ", retry %d", d.RetryAfter())
	}
	for i := range d.Len() {
		r := d.At(i)
		fmt.Fprintf(&b, "\n  %s: allowed %v, known %v, %d of %d in %d used, %d remain, %d raised, %d held; retry %d, next %d, reset %d, delay %d, violates %v",
			r.Policy.Name(), r.Allowed, r.Known, r.Used, r.Limit, r.Window, r.Remaining, r.Raised, r.Held,
			cmp.Or(r.KeptAfter(), r.RetryAfter), r.NextAfter, r.ResetAfter, r.Delay, []bool{r.Violates(0), r.Violates(1), r.Violates(2)})
	}
	return b.String()
}

// alternating is the algorithm of a policy whose charges take turns with several limits. Charges
// without a limit of their own have the first.
type alternating struct {
	core.Algorithm
	limits []core.Algorithm
}

func changing(limits ...core.Algorithm) core.Algorithm { return alternating{limits[0], limits} }

// limitUnder returns the i-th limit of a policy whose limits alternate, and nil for others.
func limitUnder(i int, p *core.Policy) core.Algorithm {
	if a, ok := p.Algorithm().(alternating); ok {
		return a.limits[i%len(a.limits)]
	}
	return nil
}

// under returns charges with the i-th limits of their policies.
func under(i int, charges ...core.Charge) []core.Charge {
	charges = slices.Clone(charges)
	for at := range charges {
		charges[at].Limit = limitUnder(i, charges[at].Policy)
	}
	return charges
}

// rounds returns n, or less on a Redis: TestScriptAgreesWithModel proves that it decides as memory does.
// miniredis runs Lua slowly under the race detector.
func rounds(t testing.TB, n int) int {
	switch {
	case strings.Contains(t.Name(), "miniredis"):
		return max(1, n/16)
	case strings.Contains(t.Name(), "memory") || long():
		return n
	}
	return max(1, n/4)
}

// namedLimit is a limit in a table.
type namedLimit struct {
	name      string
	algorithm core.Algorithm
}

// limitsOfTen are limits of every algorithm that keeps state. Each has room for 10 at once, and
// frees none of them within minutes.
var limitsOfTen = []namedLimit{
	{"token bucket", core.TokenBucket{Rate: 1, Per: time.Hour, Burst: 10}},
	{"frozen", frozen(10)},
	{"leaky bucket", core.LeakyBucket{Rate: 10, Per: time.Hour, Capacity: 10}},
	{"fixed window", core.FixedWindow{Limit: 10, Window: 24 * time.Hour}},
	{"window from first", core.FixedWindow{Limit: 10, Window: 24 * time.Hour, FromFirst: true}},
	{"two counters", core.SlidingWindow{Limit: 10, Window: 24 * time.Hour}},
	{"buckets", core.SlidingWindow{Limit: 10, Window: 24 * time.Hour, Buckets: 10}},
	{"log", core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: 24 * time.Hour}}}},
	{"log of two windows", core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Hour}, {Limit: 11, Width: 24 * time.Hour}}}},
	{"calendar", core.Calendar{Limit: 10, Every: core.PeriodDay, In: time.UTC}},
}
