package core_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// long says whether to play the long form of a history.
func long() bool { return os.Getenv("HEADGATE_TEST_LONG") != "" }

// testClock is the time of a gate in memory, and of one on Redis by InjectClock.
type testClock struct{ micros atomic.Int64 }

func newTestClock() *testClock {
	c := new(testClock)
	c.micros.Store(1_800_000_000_000_000)
	return c
}

func (c *testClock) Now() time.Time          { return time.UnixMicro(c.micros.Load()) }
func (c *testClock) advance(d time.Duration) { c.micros.Add(d.Microseconds()) }

// twins are a gate on Redis and one in memory at the same time. Each has policies of its own, because a policy's last
// denial steers the order of the groups.
type twins struct {
	clock         *testClock
	redis, memory *core.Gate
	client        *redis.Client
	onRedis       []*core.Policy
	inMemory      []*core.Policy
}

func newTwins(t testing.TB, s *redistest.Server, policies ...core.PolicyConfig) *twins {
	t.Helper()
	w := &twins{clock: newTestClock(), client: s.Client(t)}
	var err error
	// The deadline is generous, because a machine may be slow and these tests are not about it.
	if w.redis, err = core.NewRedis(w.client, core.Config{Timeout: time.Minute, Prefix: s.Prefix}); err != nil {
		t.Fatal(err)
	}
	w.redis.InjectClock(w.clock.micros.Load)
	if w.memory, err = core.NewMemory(core.Config{Clock: w.clock}); err != nil {
		t.Fatal(err)
	}
	for _, cfg := range policies {
		w.onRedis = append(w.onRedis, mustPolicy(t, cfg))
		w.inMemory = append(w.inMemory, mustPolicy(t, cfg))
	}
	return w
}

func mustPolicy(t testing.TB, cfg core.PolicyConfig) *core.Policy {
	t.Helper()
	p, err := core.NewPolicy(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustKey(t testing.TB, outermost string, inner ...string) core.Key {
	t.Helper()
	k, err := core.NewKey(outermost, inner...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// outcome is all that a decision says, in a form that can be compared and printed.
func outcome(granted int64, d core.Decision, err error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "allowed %v granted %d cause %v err %v\n", d.Allowed, granted, d.Cause, err)
	for i := range d.Len() {
		r := d.At(i)
		fmt.Fprintf(&b, "  %s allowed %v known %v limit %d used %d remaining %d retry %v next %v reset %v\n",
			r.Policy.Name(), r.Allowed, r.Known, r.Limit, r.Used, r.Remaining, r.RetryAfter, r.NextAfter, r.ResetAfter)
	}
	return b.String()
}

// The policies of the histories: whole and fractional tokens, tiny and huge bursts, none that refills, shadows.
var historyPolicies = []core.PolicyConfig{
	{Name: "whole", Algorithm: core.TokenBucket{Rate: 10, Per: time.Second, Burst: 5}},
	{Name: "sevenths", Algorithm: core.TokenBucket{Rate: 7, Per: time.Second, Burst: 10}},
	{Name: "odd", Algorithm: core.TokenBucket{Rate: 999_983, Per: 24 * time.Hour, Burst: 1000}},
	{Name: "fast", Algorithm: core.TokenBucket{Rate: 300_000, Per: time.Second, Burst: 100}},
	{Name: "faster", Algorithm: core.TokenBucket{Rate: 1_000_000, Per: time.Second, Burst: 1_000_000}},
	{Name: "slow", Algorithm: core.TokenBucket{Rate: 1, Per: 30 * 24 * time.Hour, Burst: 2}},
	{Name: "nanoseconds", Algorithm: core.TokenBucket{Rate: 3, Per: 1001 * time.Nanosecond, Burst: 7}},
	{Name: "gift", Algorithm: core.TokenBucket{Burst: 30}},
	{Name: "shadow", Algorithm: core.TokenBucket{Rate: 3, Per: time.Second, Burst: 3}, Shadow: true},
	{Name: "free", Algorithm: core.Unlimited{}},
	{Name: "shut", Algorithm: core.DenyAll{}, Shadow: true},
}

// The script and the Go model agree on every field of every decision, whatever the clock does.
func TestScriptAndModelAgree(t *testing.T) {
	operations := 5000
	if long() {
		operations = 100_000
	}
	for _, split := range []bool{false, true} {
		t.Run(map[bool]string{false: "one script", true: "a script for each outermost part"}[split], func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				seed := rand.Uint64()
				if err := agree(t, s, seed, operations, split); err != "" {
					t.Fatalf("seed %d: %s", seed, err)
				}
			})
		})
	}
}

func agree(t *testing.T, s *redistest.Server, seed uint64, operations int, split bool) string {
	w := newTwins(t, s, historyPolicies...)
	if split {
		w.redis.SplitByOutermost()
		w.memory.SplitByOutermost()
	}
	random := rand.New(rand.NewPCG(seed, 0))
	keys := []core.Key{
		mustKey(t, "a"), mustKey(t, "a", "u"), mustKey(t, "b"), mustKey(t, "b", "{u}"),
	}
	ctx := t.Context()
	gaveBack := false
	for n := range operations {
		step(random, w.clock)
		count := 1 + random.IntN(5)
		if random.IntN(100) == 0 {
			count = core.MaxCharges
		}
		same := int64(random.IntN(20)) // AtMost wants one cost for all
		operation := random.IntN(20)
		charges, twin := make([]core.Charge, count), make([]core.Charge, count)
		for i := range charges {
			p, key := random.IntN(len(w.onRedis)), keys[random.IntN(len(keys))]
			cost := []int64{0, 1, 1, 1, 2, 5, 30, 100, 1000, 500_000}[random.IntN(10)]
			if operation < 5 {
				cost = same
			}
			charges[i] = core.Charge{Policy: w.onRedis[p], Key: key, Cost: cost}
			twin[i] = core.Charge{Policy: w.inMemory[p], Key: key, Cost: cost}
		}
		var got, want string
		switch {
		case operation < 5:
			granted, d, err := w.redis.AtMost(ctx, charges...)
			got = outcome(granted, d, err)
			granted, d, err = w.memory.AtMost(ctx, twin...)
			want = outcome(granted, d, err)
		case operation < 7:
			d, err := w.redis.Peek(ctx, charges...)
			got = outcome(0, d, err)
			d, err = w.memory.Peek(ctx, twin...)
			want = outcome(0, d, err)
		case operation < 8:
			got = fmt.Sprint(w.redis.Reset(ctx, charges[0].Policy, charges[0].Key))
			want = fmt.Sprint(w.memory.Reset(ctx, twin[0].Policy, twin[0].Key))
		default:
			d, err := w.redis.Decide(ctx, charges...)
			got = outcome(0, d, err)
			d, err = w.memory.Decide(ctx, twin...)
			want = outcome(0, d, err)
		}
		if got != want {
			return fmt.Sprintf("operation %d at %d with %v:\nscript %s\nmodel  %s", n, w.clock.micros.Load(), charges, got, want)
		}
		if n%20 == 0 || operations < 1000 {
			names := keysOf(t, w.client, s.Prefix)
			values := w.memory.Values()
			for _, name := range names {
				if ttl := w.client.PTTL(ctx, name).Val(); ttl <= 0 {
					return fmt.Sprintf("operation %d: %s has no time to live", n, name)
				}
				value := w.client.Get(ctx, name).Val()
				if model := values[strings.TrimPrefix(name, s.Prefix+":")]; value != model {
					return fmt.Sprintf("operation %d %v: %s holds %q, in the model %q", n, charges, name, value, model)
				}
				parts := strings.Fields(value)
				gaveBack = gaveBack || len(parts) == 4 && parts[3] != "0"
			}
			if len(names) != len(values) {
				return fmt.Sprintf("operation %d: %d keys, in the model %d", n, len(names), len(values))
			}
		}
	}
	if split && !gaveBack {
		return "nothing was ever given back"
	}
	return ""
}

// step moves the clock: mostly a little ahead, now and then far, and sometimes back.
func step(random *rand.Rand, c *testClock) {
	switch n := random.IntN(100); {
	case n < 40:
		c.advance(time.Duration(random.IntN(1000)) * time.Microsecond)
	case n < 80:
		c.advance(time.Duration(random.IntN(400)) * time.Millisecond)
	case n < 92:
		c.advance(time.Duration(random.IntN(3600)) * time.Second)
	case n < 95:
		c.advance(time.Duration(random.IntN(20*24)) * time.Hour)
	case n < 98:
		c.advance(-time.Duration(random.IntN(7200)) * time.Second)
	}
}

func keysOf(t *testing.T, client *redis.Client, prefix string) []string {
	t.Helper()
	var names []string
	for i := client.Scan(t.Context(), 0, "*"+prefix+"*", 1000).Iterator(); i.Next(t.Context()); {
		names = append(names, i.Val())
	}
	return names
}
