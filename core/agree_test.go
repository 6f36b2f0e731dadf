package core_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/request"
)

// mixedPolicies are policies of every kind: tokens of whole and of fractional microseconds, tiny
// and huge bursts, no refill, shadows, and no state.
var mixedPolicies = []core.PolicyConfig{
	{Name: "whole", Algorithm: core.PerSecond(10)},
	{Name: "seventh", Algorithm: core.TokenBucket{Rate: 7, Per: time.Second, Burst: 3}},
	{Name: "prime", Algorithm: core.TokenBucket{Rate: 999_983, Per: 24 * time.Hour, Burst: 1}},
	{Name: "fast", Algorithm: core.TokenBucket{Rate: 300_000, Per: time.Second, Burst: 5}},
	{Name: "month", Algorithm: core.TokenBucket{Rate: 1, Per: 30 * 24 * time.Hour, Burst: 2}},
	{Name: "million", Algorithm: core.PerSecond(1_000_000)},
	{Name: "below-microsecond", Algorithm: core.TokenBucket{Rate: 1 << 42, Per: 1, Burst: 1_000_000_007}},
	{Name: "largest", Algorithm: core.TokenBucket{Rate: 1 << 42, Per: time.Second - 1, Burst: 1<<53 - 1}},
	{Name: "century", Algorithm: core.TokenBucket{Rate: 3, Per: 36524 * 24 * time.Hour, Burst: 3}},
	{Name: "frozen", Algorithm: core.TokenBucket{Burst: 40}},
	{Name: "session", Algorithm: core.TokenBucket{Burst: 30, Per: 2 * time.Second}},
	{Name: "changing-session", Algorithm: changing(
		core.TokenBucket{Burst: 30, Per: time.Minute}, frozen(20), core.TokenBucket{Burst: 40, Per: time.Second})},
	{Name: "shadow-session", Algorithm: core.TokenBucket{Burst: 5, Per: time.Hour}, Shadow: true},
	{Name: "frozen-huge", Algorithm: core.TokenBucket{Burst: 1_000_000_000_000_000}},
	{Name: "threes", Algorithm: core.TokenBucket{Rate: 3, Per: 7 * time.Second, Burst: 100}},
	{Name: "shadow", Algorithm: core.TokenBucket{Rate: 5, Per: 3 * time.Second, Burst: 4}, Shadow: true},
	{Name: "shadow-frozen", Algorithm: core.TokenBucket{Burst: 6}, Shadow: true},
	{Name: "shadow-month", Algorithm: core.TokenBucket{Rate: 7, Per: 30 * 24 * time.Hour, Burst: 2}, Shadow: true},
	{Name: "leaky", Algorithm: core.LeakyBucket{Rate: 3, Per: time.Second, Capacity: 20}},
	{Name: "leaky-fast", Algorithm: core.LeakyBucket{Rate: 700_001, Per: time.Second, Capacity: 9}},
	{Name: "fixed", Algorithm: core.FixedWindow{Limit: 20, Window: 3 * time.Second}},
	{Name: "fixed-first", Algorithm: core.FixedWindow{Limit: 7, Window: 1001 * time.Microsecond, FromFirst: true}},
	{Name: "fixed-huge", Algorithm: core.FixedWindow{Limit: 1_000_000_000_000_000, Window: 24 * time.Hour}},
	{Name: "sliding", Algorithm: core.SlidingWindow{Limit: 10, Window: 5 * time.Second}},
	{Name: "sliding-ticks", Algorithm: core.SlidingWindow{Limit: 1_000_000_007, Window: 7 * 24 * time.Hour}},
	{Name: "buckets", Algorithm: core.SlidingWindow{Limit: 30, Window: time.Second, Buckets: 20}},
	{Name: "bucket", Algorithm: core.SlidingWindow{Limit: 3, Window: 7 * time.Microsecond, Buckets: 1}},
	{Name: "log", Algorithm: core.SlidingLog{Windows: []core.Window{{Limit: 100, Width: 10 * time.Second}}}},
	{Name: "log-three", Algorithm: core.SlidingLog{Windows: []core.Window{
		{Limit: 4, Width: time.Second}, {Limit: 10, Width: time.Minute}, {Limit: 300, Width: time.Hour},
	}}},
	{Name: "minutes", Algorithm: core.Calendar{Limit: 9, Every: core.PeriodMinute, In: time.UTC}},
	{Name: "days", Algorithm: core.Calendar{Limit: 30, Every: core.PeriodDay, In: lordHowe}},
	{Name: "months", Algorithm: core.Calendar{Limit: 50, Every: core.PeriodMonth, In: lordHowe, Anchor: time.Date(2025, 1, 31, 12, 0, 0, 0, lordHowe)}},
	{Name: "shadow-log", Algorithm: core.SlidingLog{Windows: []core.Window{{Limit: 3, Width: time.Minute}}}, Shadow: true},
	{Name: "shadow-days", Algorithm: core.Calendar{Limit: 3, Every: core.PeriodHour, In: time.UTC}, Shadow: true},
	{Name: "changing-bucket", Algorithm: changing(core.PerSecond(10), core.PerSecond(3), core.PerMinute(100), core.TokenBucket{Rate: 7, Per: time.Second, Burst: 3})},
	{Name: "changing-whole", Algorithm: changing(core.PerSecond(10), core.PerSecond(5), core.PerMinute(60), core.PerHour(60))},
	{Name: "wide-or-narrow-bucket", Algorithm: changing(
		core.PerHour(100), core.PerMinute(100), core.TokenBucket{Rate: 100, Per: time.Hour, Burst: 10}, core.TokenBucket{Rate: 7, Per: time.Hour, Burst: 30})},
	{Name: "wide-or-narrow-leaky", Algorithm: changing(
		core.LeakyBucket{Rate: 100, Per: time.Hour, Capacity: 100}, core.LeakyBucket{Rate: 300_000, Per: time.Hour, Capacity: 10}, core.LeakyBucket{Rate: 7, Per: time.Minute, Capacity: 30})},
	{Name: "below-microsecond-or-above", Algorithm: changing(
		core.TokenBucket{Rate: 5, Per: time.Microsecond, Burst: 9}, core.TokenBucket{Rate: 1, Per: 3 * time.Microsecond, Burst: 7}, core.TokenBucket{Rate: 3, Per: 7 * time.Microsecond, Burst: 2})},
	{Name: "changing-frozen", Algorithm: changing(frozen(40), frozen(10), frozen(1000))},
	{Name: "changing-leaky", Algorithm: changing(core.LeakyBucket{Rate: 3, Per: time.Second, Capacity: 20}, core.LeakyBucket{Rate: 1, Per: time.Second, Capacity: 2})},
	{Name: "changing-fixed", Algorithm: changing(
		core.FixedWindow{Limit: 10, Window: time.Second}, core.FixedWindow{Limit: 3, Window: time.Minute, FromFirst: true}, core.FixedWindow{Limit: 30, Window: time.Millisecond})},
	{Name: "changing-sliding", Algorithm: changing(
		core.SlidingWindow{Limit: 10, Window: time.Second}, core.SlidingWindow{Limit: 3, Window: time.Minute}, core.SlidingWindow{Limit: 200, Window: 10 * time.Second})},
	{Name: "changing-log", Algorithm: changing(
		core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Second}}},
		core.SlidingLog{Windows: []core.Window{{Limit: 300, Width: time.Minute}, {Limit: 30, Width: time.Second}}})},
	{Name: "changing-buckets", Algorithm: changing(
		core.SlidingWindow{Limit: 10, Window: time.Second, Buckets: 10}, core.SlidingWindow{Limit: 100, Window: time.Minute, Buckets: 1000})},
	{Name: "changing-days", Algorithm: changing(core.Calendar{Limit: 9, Every: core.PeriodDay, In: time.UTC}, core.Calendar{Limit: 4, Every: core.PeriodDay, In: lordHowe})},
	{Name: "changing-zones", Algorithm: changing(
		core.Calendar{Limit: 9, Every: core.PeriodDay, In: time.UTC}, core.Calendar{Limit: 7, Every: core.PeriodDay, In: loadZone("America/New_York")},
		core.Calendar{Limit: 9, Every: core.PeriodDay, In: time.UTC, Anchor: noon})},
	{Name: "changing-anchors", Algorithm: changing(
		core.Calendar{Limit: 9, Every: core.PeriodMinute, In: time.UTC}, core.Calendar{Limit: 7, Every: core.PeriodMinute, In: time.UTC, Anchor: noon.Add(20 * time.Second)})},
	{Name: "block", Algorithm: core.Block{Strikes: 5, Within: 10 * time.Second, For: time.Second, Most: time.Minute, Forgive: time.Hour}},
	{Name: "block-once", Algorithm: core.Block{Strikes: 1, Within: time.Millisecond, For: 3 * time.Millisecond}},
	{Name: "block-many", Algorithm: core.Block{Strikes: 100, Within: 24 * time.Hour, For: time.Second, Most: 24 * 365 * time.Hour}},
	{Name: "shadow-block", Algorithm: core.Block{Strikes: 3, Within: time.Second, For: time.Minute}, Shadow: true},
	{Name: "changing-block", Algorithm: changing(
		core.Block{Strikes: 5, Within: 10 * time.Second, For: time.Second, Most: time.Minute, Forgive: time.Hour},
		core.Block{Strikes: 2, Within: time.Hour, For: time.Minute, Most: time.Hour, Forgive: time.Second})},
	{Name: "unlimited", Algorithm: core.Unlimited{}},
	{Name: "none", Algorithm: core.DenyAll{}},
}

// heldPolicies are policies whose reservations expire.
var heldPolicies = []core.PolicyConfig{
	{Name: "held-bucket", Algorithm: core.PerSecond(10), Hold: 900 * time.Millisecond},
	{Name: "held-thirds", Algorithm: core.TokenBucket{Rate: 3, Per: 7 * time.Second, Burst: 40}, Hold: 10 * time.Second},
	{Name: "held-frozen", Algorithm: core.TokenBucket{Burst: 40}, Hold: 2 * time.Second},
	{Name: "held-session", Algorithm: core.TokenBucket{Burst: 40, Per: 5 * time.Second}, Hold: 2 * time.Second},
	{Name: "held-leaky", Algorithm: core.LeakyBucket{Rate: 3, Per: time.Second, Capacity: 20}, Hold: time.Second},
	{Name: "held-fixed", Algorithm: core.FixedWindow{Limit: 20, Window: 3 * time.Second}, Hold: time.Second},
	{Name: "held-sliding", Algorithm: core.SlidingWindow{Limit: 10, Window: 5 * time.Second}, Hold: 3 * time.Second},
	{Name: "held-log", Algorithm: core.SlidingLog{Windows: []core.Window{{Limit: 30, Width: 10 * time.Second}}}, Hold: 4 * time.Second},
	{Name: "held-months", Algorithm: core.Calendar{Limit: 50, Every: core.PeriodMonth, In: time.UTC}, Hold: time.Hour},
	{Name: "held-shadow", Algorithm: core.TokenBucket{Burst: 6}, Shadow: true, Hold: time.Second},
	{Name: "held-changing", Algorithm: changing(
		core.TokenBucket{Rate: 7, Per: 3 * time.Second, Burst: 30}, core.TokenBucket{Rate: 1, Per: 7 * time.Second, Burst: 20}, core.PerMinute(60)), Hold: 2 * time.Second},
}

// quotas are policies whose counts can be adjusted, and the limits of some raised.
var quotas = []core.PolicyConfig{
	{Name: "raisable-fixed", Algorithm: core.FixedWindow{Limit: 20, Window: 3 * time.Second}, Raisable: true},
	{Name: "raisable-frozen", Algorithm: core.TokenBucket{Burst: 40}, Raisable: true, Hold: 2 * time.Second},
	{Name: "raisable-session", Algorithm: core.TokenBucket{Burst: 40, Per: time.Minute}, Raisable: true},
	{Name: "raisable-months", Algorithm: core.Calendar{Limit: 50, Every: core.PeriodMonth, In: lordHowe}, Raisable: true, Hold: time.Hour},
	{Name: "raisable-shadow", Algorithm: core.Calendar{Limit: 9, Every: core.PeriodMinute, In: time.UTC}, Raisable: true, Shadow: true},
	{Name: "raisable-changing", Algorithm: changing(
		core.FixedWindow{Limit: 10, Window: time.Minute}, core.FixedWindow{Limit: 30, Window: time.Hour},
		core.PerSecond(10), core.FixedWindow{Limit: 3, Window: time.Minute, FromFirst: true}), Raisable: true},
	{Name: "ledger-days", Algorithm: core.Calendar{Limit: 30, Every: core.PeriodDay, In: time.UTC}, Ledger: spentIn, Raisable: true},
	{Name: "ledger-fixed", Algorithm: core.FixedWindow{Limit: 25, Window: 10 * time.Second}, Ledger: spentIn, Hold: time.Second},
	{Name: "ledger-session", Algorithm: core.TokenBucket{Burst: 100, Per: time.Minute}, Ledger: spentIn},
	{Name: "ledger-frozen", Algorithm: core.TokenBucket{Burst: 100}, Ledger: spentIn},
	// Debts of these outlive the clock's moves.
	{Name: "plain-fixed", Algorithm: core.FixedWindow{Limit: 3, Window: 30 * 24 * time.Hour}},
	{Name: "plain-months", Algorithm: core.Calendar{Limit: 3, Every: core.PeriodMonth, In: time.UTC}},
}

// spentIn is a ledger that says something else in each period.
func spentIn(_ context.Context, _ core.Key, period core.Span) (int64, error) {
	return period.From.Unix() / 7 % 40 & 0x3f, nil
}

// lordHowe is a time zone whose daylight saving time shifts the clock by half an hour.
var lordHowe = func() *time.Location {
	zone, err := time.LoadLocation("Australia/Lord_Howe")
	if err != nil {
		panic(err)
	}
	return zone
}()

// lockstep is a Gate on Redis and one in memory that must give the same answers. Each Gate has its
// own policies.
type lockstep struct {
	ends []time.Time // of raises
	*testing.T
	rng           *rand.Rand
	clock         *core.ManualClock
	redis, memory *core.Gate
	configs       []core.PolicyConfig
	policies      [2][]*core.Policy
	keys          []core.Key
	suffixes      map[string]string // of token buckets, by label
	client        *redis.Client
	prefix        string
	held          [][2]*core.Reservation
	plan          int
	alternate     bool // the limits alternate
}

func newLockstep(t *testing.T, s *redistest.Server) *lockstep {
	l := &lockstep{
		T: t, rng: redistest.Rand(t), clock: newClock(), client: s.Client(t), prefix: s.Prefix,
	}
	redistest.ReplayUnderLua54(t, l.client)
	l.redis = redisGate(t, l.client, core.Config{Prefix: l.prefix, DisableDenialCache: true})
	l.redis.InjectClock(micros(l.clock))
	l.memory = memoryGate(t, core.Config{Clock: l.clock.Now})
	l.redis.NumberHolds()
	l.memory.NumberHolds()
	l.configs = slices.Concat(mixedPolicies, heldPolicies, quotas)
	l.suffixes = make(map[string]string)
	for _, cfg := range l.configs {
		l.knows(cfg.Name)
		for i := range l.policies {
			if cfg.Algorithm == nil {
				cfg.Algorithm = core.DenyAll{}
			}
			l.policies[i] = append(l.policies[i], newPolicy(t, cfg))
		}
	}
	l.keys = []core.Key{newKey(t, "a"), newKey(t, "a", "x"), newKey(t, "b", "x"), newKey(t, "c {1}")}
	return l
}

// knows says that the keys may have token buckets of a policy of this name.
func (l *lockstep) knows(name string) {
	for _, tag := range []string{"tb2", "lb2"} {
		suffix := ":" + name + ":" + tag
		l.suffixes[request.LabelOf(suffix)] = suffix
	}
}

// move advances the clock: mostly a little, sometimes by days, and sometimes backwards.
func (l *lockstep) move() {
	span := []int64{1, 10, 1_000, 200_000, 5_000_000, 3_600_000_000, 40 * 86_400_000_000}[l.rng.IntN(7)]
	switch l.rng.IntN(22) {
	case 20, 21: // to the start of this or the next minute or day, give or take 1 µs
		length := []int64{60_000_000, 86_400_000_000}[l.rng.IntN(2)]
		now := l.clock.Now().UnixMicro()
		l.clock.Set(time.UnixMicro(now - now%length + length*l.rng.Int64N(2) + l.rng.Int64N(3) - 1))
	case 0, 1:
		l.clock.Advance(time.Duration(-l.rng.Int64N(min(2*3_600_000_000, 3*span)+1)) * time.Microsecond)
	case 2, 3, 4, 5, 6, 7, 8:
		l.clock.Advance(time.Duration(l.rng.Int64N(span+1)) * time.Microsecond)
	}
	if l.clock.Now().Year() > 2050 {
		l.forget()
		l.clock.Set(time.UnixMicro(epoch)) // see TestLargestNumbersAreExact
	}
}

// forget resets all keys, because Redis has forgotten buckets that have been full for days. Back at the
// epoch, the model would find them with a level.
func (l *lockstep) forget() {
	l.Helper()
	for i, g := range []*core.Gate{l.redis, l.memory} {
		for plan := range 4 {
			for _, p := range l.policies[i] {
				for _, key := range l.keys {
					noError(l, g.Reset(l.Context(), under(plan, core.Charge{Policy: p, Key: key})...))
				}
			}
		}
	}
}

func (l *lockstep) cost(burst int64) int64 {
	switch l.rng.IntN(12) {
	case 0:
		return core.NoCost
	case 1:
		return burst
	case 2:
		return max(1, burst-1)
	case 3:
		if burst == 1<<53-1 {
			return burst
		}
		return burst + 1
	case 4:
		return 1 + l.rng.Int64N(burst)
	case 5:
		return 1 + l.rng.Int64N(burst/2+1)
	case 6:
		if l.rng.IntN(10) == 0 {
			return math.MaxInt64
		}
	}
	return 1 + l.rng.Int64N(3)
}

// charges returns the same random charges for both Gates.
func (l *lockstep) charges() (both [2][]core.Charge) {
	n := 1 + l.rng.IntN(5)
	if l.rng.IntN(40) == 0 {
		n = core.MaxCharges
	}
	for range n {
		at := l.rng.IntN(len(l.configs))
		if l.rng.IntN(4) == 0 {
			at = len(mixedPolicies) + l.rng.IntN(len(heldPolicies)+len(quotas))
		}
		if l.configs[at].Name == "none" && l.rng.IntN(4) > 0 {
			at = 0
		}
		key := l.keys[l.rng.IntN(len(l.keys))]
		burst := int64(10)
		if b, ok := l.configs[at].Algorithm.(core.TokenBucket); ok {
			burst = b.Burst
		}
		cost := l.cost(burst)
		for i := range both {
			both[i] = append(both[i], core.Charge{Policy: l.policies[i][at], Key: key, Cost: cost})
		}
	}
	return l.ask(both)
}

// ask appends charges that ask whether Blocks block, or none.
func (l *lockstep) ask(both [2][]core.Charge) [2][]core.Charge {
	for n := l.rng.IntN(6); n > 3 && len(both[0]) < core.MaxCharges; n-- {
		at, key := indexOf("block")+l.rng.IntN(5), newKey(l, "a", "quiet") // has no state
		if l.rng.IntN(3) == 0 {
			key = l.keys[l.rng.IntN(len(l.keys))]
		}
		for i := range both {
			both[i] = append(both[i], core.Charge{Policy: l.policies[i][at], Key: key, Cost: core.NoCost})
		}
	}
	return both
}

// step runs one random operation on both Gates and compares every visible outcome.
func (l *lockstep) step(i int) {
	l.Helper()
	l.move()
	both := l.charges()
	var (
		what string
		seen [2]string
	)
	if l.rng.IntN(50) == 0 {
		l.alternate = !l.alternate
	}
	if l.alternate || l.rng.IntN(50) == 0 {
		l.plan = l.rng.IntN(12)
	}
	op, wait, pick := l.rng.IntN(33), time.Duration(l.rng.Int64N(3_000_000)+l.rng.Int64N(2)*1000)*time.Microsecond, l.rng.IntN(1+len(l.held))
	var (
		reserved [2]*core.Reservation
		actual   []int64
	)
	for range both[0] {
		units := l.rng.Int64N(6)
		if l.rng.IntN(3) == 0 { // a debt of several windows
			units *= 1 + l.rng.Int64N(50)
		}
		actual = append(actual, units)
	}
	quota, change := l.rng.IntN(len(l.configs)), l.adjustment()
	figure := change.Raise * (1 + l.rng.Int64N(30))
	if l.rng.IntN(8) > 0 {
		quota = len(mixedPolicies) + len(heldPolicies) + l.rng.IntN(len(quotas))
	}
	for i, g := range []*core.Gate{l.redis, l.memory} {
		ctx, charges := l.Context(), under(l.plan, both[i]...)
		switch {
		case op >= 31:
			change.Policy = l.policies[i][quota]
			change.Limit = limitUnder(l.plan, change.Policy)
			done, err := g.Adjust(ctx, change)
			what, seen[i] = "Adjust", fmt.Sprint(done, err)
		case op >= 29:
			c := under(l.plan, core.Charge{Policy: l.policies[i][quota], Key: change.Key})[0]
			added, err := g.RaiseUsed(ctx, c, figure, change.At)
			what, seen[i] = "RaiseUsed", fmt.Sprint(added, err)
		case op >= 27 && pick < len(l.held):
			what, seen[i] = "Renew", fmt.Sprint(l.held[pick][i].Renew())
		case op >= 26:
			r, d, err := g.Charge(ctx, charges...)
			r.Abandon()
			what, seen[i], reserved[i] = "Charge", fmt.Sprint(r != nil, show(d), err), r
		case op >= 24:
			at := slices.IndexFunc(mixedPolicies, func(p core.PolicyConfig) bool { return p.Name == "block" }) + pick%4
			policy, key := l.policies[i][at], charges[0].Key
			if op == 24 && pick%2 == 0 {
				what, seen[i] = "ForgiveBlock", fmt.Sprint(inside.Forgive(ctx, g, policy, key))
				break
			}
			if op == 25 && pick%2 == 0 {
				what = "CoolKey"
				growth := core.Block{Strikes: 1, Within: time.Second, For: time.Second, Most: 5 * time.Second, Forgive: time.Hour}
				c := hub.Cooldown{For: wait * time.Duration(pick/4%2), Age: wait, Reason: int64(pick % 3)}
				rest, err := inside.Cool(ctx, g, policy, key, growth, c)
				d, _ := g.Peek(ctx, core.Charge{Policy: policy, Key: key, Cost: core.NoCost})
				seen[i] = fmt.Sprint(rest, err, inside.Reason(d.At(0)))
				break
			}
			if what = "ForgetStrikes"; op == 24 {
				seen[i] = fmt.Sprint(blocklist(l, g, policy).Forget(ctx, key))
				break
			}
			what = "BlockKey"
			seen[i] = fmt.Sprint(blocklist(l, g, policy).Block(ctx, key, wait+time.Microsecond))
		case op >= 22 && pick < len(l.held):
			r := l.held[pick][i]
			if what = "Cancel"; op == 22 {
				seen[i] = fmt.Sprint(r.Cancel(ctx))
				break
			}
			what = "Settle"
			for len(actual) < r.Charges() {
				actual = append(actual, int64(len(actual)))
			}
			seen[i] = fmt.Sprint(r.Settle(ctx, actual[:r.Charges()]...))
		case op >= 20:
			r, d, err := g.Reserve(ctx, wait, charges...)
			r.Abandon()
			what, seen[i], reserved[i] = "Reserve", fmt.Sprint(r != nil, show(d), err), r
		case op < 12:
			d, err := g.Decide(ctx, charges...)
			what, seen[i] = "Decide", fmt.Sprint(show(d), err)
		case op < 15:
			d, err := g.Peek(ctx, charges...)
			what, seen[i] = "Peek", fmt.Sprint(show(d), err)
		case op < 19:
			for i := range charges {
				if charges[i].Cost != core.NoCost {
					charges[i].Cost = charges[0].Cost
				}
			}
			granted, d, err := atMost(g, ctx, charges...)
			what, seen[i] = "SpendUpTo", fmt.Sprint(granted, show(d), err)
		default:
			what, seen[i] = "Reset", fmt.Sprint(g.Reset(ctx, core.Charge{Policy: charges[0].Policy, Key: charges[0].Key, Limit: charges[0].Limit}))
		}
	}
	l.redis.AwaitTasks() // which read the clock of this step
	l.memory.AwaitTasks()
	if seen[0] != seen[1] {
		var asked strings.Builder
		for _, c := range both[0] {
			fmt.Fprintf(&asked, "  %s %s %d\n", c.Policy.Name(), c.Key, c.Cost)
		}
		l.Fatalf("operation %d at %d: %s\n%sredis:  %s\nmemory: %s", i, l.clock.Now().UnixMicro(), what, &asked, seen[0], seen[1])
	}
	if reserved[0] != nil {
		l.held = append(l.held, reserved)
	}
	if op >= 22 && op < 24 && pick < len(l.held) && reserved[0] == nil {
		l.held = slices.Delete(l.held, pick, pick+1)
	}
	if len(l.held) > 20 {
		l.held = l.held[1:]
	}
	l.checkChargedKeys(both[0])
	if i%20 == 0 {
		l.compareStates()
	}
}

// checkChargedKeys checks that the keys of the charges, if they exist, have a TTL.
func (l *lockstep) checkChargedKeys(charges []core.Charge) {
	l.Helper()
	var names []string
	for _, c := range charges {
		if tag := c.Policy.Suffix(limitUnder(l.plan, c.Policy)); tag != "" {
			key := l.prefix + ":" + c.Key.String()
			names = append(names, key+tag, key+request.BundleSuffix)
		}
	}
	l.checkTTLs(names)
}

// compareStates compares everything that both Gates store, and checks that every key has a TTL.
func (l *lockstep) compareStates() {
	l.Helper()
	names, err := l.client.Keys(l.Context(), l.prefix+"*").Result()
	noError(l, err)
	l.checkTTLs(names)
	names = slices.DeleteFunc(names, func(name string) bool { return strings.Contains(name, ":slots:") })
	model := l.memory.Values()
	var values []any
	if len(names) > 0 {
		if values, err = l.client.MGet(l.Context(), names...).Result(); err != nil {
			l.Fatal(err)
		}
	}
	for i, name := range names {
		short := strings.TrimPrefix(name, l.prefix+":")
		if key, ok := strings.CutSuffix(short, request.BundleSuffix); ok {
			for label, value := range unbundle(l.T, values[i]) {
				state := key + l.suffixes[label]
				if value != model[state] {
					l.Fatalf("%s is %q in Redis and %q in the model", state, value, model[state])
				}
				delete(model, state)
			}
			continue
		}
		if strings.HasSuffix(name, request.HoldsSuffix) {
			values[i] = l.holds(name)
		}
		if strings.HasSuffix(name, request.AdjustmentsSuffix) {
			values[i] = l.adjustments(name)
			model[short] = l.counting(strings.Split(model[short], "\n"))
		}
		if values[i] != model[short] {
			l.Fatalf("%s holds %q in Redis and %q in the model", name, values[i], model[short])
		}
		delete(model, short)
	}
	maps.DeleteFunc(model, func(_, value string) bool { return isDrained(value, l.clock.Now().UnixMicro()) })
	if len(model) > 0 {
		l.Fatalf("only in the model: %v", model)
	}
}

// adjustment returns a random adjustment without a policy. Ids come again.
func (l *lockstep) adjustment() core.Adjustment {
	a := core.Adjustment{
		ID: fmt.Sprint("a ", l.rng.IntN(30)), Key: l.keys[l.rng.IntN(len(l.keys))], Units: l.rng.Int64N(21) - 10,
	}
	if l.rng.IntN(4) == 0 {
		a.Units *= 10 // a debt of many periods
	}
	if l.rng.IntN(3) > 0 {
		a.Raise = l.rng.Int64N(12)
		a.Until = l.clock.Now().Add(time.Duration(l.rng.Int64N(int64(3 * time.Minute))))
	}
	if l.rng.IntN(3) == 0 {
		a.At = l.clock.Now().Add(-time.Duration(l.rng.Int64N(int64(time.Second))))
	}
	if a.Raise > 0 {
		l.ends = append(l.ends, a.Until)
		if at := l.ends[l.rng.IntN(len(l.ends))]; l.rng.IntN(3) == 0 { // takes a raise back
			a.Raise, a.Until = -a.Raise, at
		}
		if len(l.ends) > 10 {
			l.ends = l.ends[1:]
		}
	}
	if l.rng.IntN(20) == 0 {
		a.Raise, a.Units = 1_000_000_000_000_000, 1_000_000_000_000_000-l.rng.Int64N(2)
	}
	return a
}

// adjustments returns what a key of adjustments has, as the model tells it.
func (l *lockstep) adjustments(name string) string {
	l.Helper()
	all := gatetest.Must(l.client.HGetAll(l.Context(), name).Result())(l)
	var lines []string
	for field, value := range all {
		if field != "raised" {
			lines = append(lines, field+" "+value)
			continue
		}
		for one := range slices.Chunk(strings.Fields(value)[1:], 2) {
			lines = append(lines, "raise "+one[1]+" "+one[0])
		}
	}
	return l.counting(lines)
}

// counting returns in order the lines of adjustments that count now.
func (l *lockstep) counting(lines []string) string {
	now := l.clock.Now().UnixMicro()
	lines = slices.DeleteFunc(lines, func(line string) bool {
		ends, err := strconv.ParseInt(line[strings.LastIndex(line, " ")+1:], 10, 64)
		return err != nil || ends <= now
	})
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// holds returns what a key of holds has, as the model tells it.
func (l *lockstep) holds(name string) string {
	l.Helper()
	all := gatetest.Must(l.client.ZRangeWithScores(l.Context(), name, 0, -1).Result())(l)
	var text strings.Builder
	for _, z := range all {
		fmt.Fprintln(&text, z.Member, int64(z.Score))
	}
	return text.String()
}

func (l *lockstep) checkTTLs(names []string) {
	l.Helper()
	ctx := l.Context()
	if len(names) == 0 {
		return
	}
	ttls := make([]*redis.DurationCmd, len(names))
	gatetest.Must(l.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range names {
			ttls[i] = p.PTTL(ctx, name)
		}
		return nil
	}))(l)
	for i, name := range names {
		if ttl := ttls[i].Val(); ttl != -2 && ttl <= 0 {
			l.Fatalf("key %s has PTTL %d", name, ttl)
		}
	}
}

// operations returns how many operations one server gets in each of the two ways to decide. On
// miniredis both ways together get 3,000, because under the race detector its Lua takes a
// millisecond for each.
func operations(s *redistest.Server) int {
	switch {
	case long():
		return 100_000
	case !s.Real:
		return 1_500
	}
	return 3_000
}

func TestScriptAgreesWithModel(t *testing.T) {
	t.Parallel()
	for _, split := range []bool{false, true} {
		name := "one script"
		if split {
			name = "a script for each slot"
		}
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				l := newLockstep(t, s)
				if split {
					l.redis.SplitByOutermost()
					l.memory.SplitByOutermost()
				}
				for i := range operations(s) {
					l.step(i)
				}
			})
		})
	}
}

// The script that takes slots together with charges, and the one that gives them back, reply the same
// under Lua 5.4.
func TestAdmissionsUnderLua54(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		l := newLockstep(t, s)
		slots := newSemaphore(t, l.redis, semaphore.Config{Name: "slots", TTL: time.Hour})
		var last *semaphore.Lease
		for n := range operations(s) / 3 {
			l.move()
			if l.rng.IntN(2) == 0 {
				_ = last.Release(t.Context()) // the clock may have ended it
			}
			charges := under(n, l.charges()[0]...)
			ask := semaphore.Request{Caps: []semaphore.Cap{{Key: charges[0].Key, Limit: 1}}}
			lease, d, err := slots.Admit(t.Context(), ask, charges...)
			if err != nil && !errors.Is(err, semaphore.ErrFull) {
				t.Fatal(show(d), err)
			}
			if lease != nil {
				lease.Reservation().Abandon()
				last = lease
			}
		}
	})
}

// Sums near the largest integer, which a random history is unlikely to reach, agree too.
func TestScriptAgreesWithModelAtExtremes(t *testing.T) {
	t.Parallel()
	month := core.TokenBucket{Rate: 1, Per: 30 * 24 * time.Hour, Burst: 1}
	many := core.FixedWindow{Limit: 1_000_000_000_000_000, Window: 24 * time.Hour}
	tests := []struct {
		name     string
		policies []core.PolicyConfig
		times    int64
		each     int64
		want     int64
	}{
		{"only a shadow", []core.PolicyConfig{{Name: "s", Algorithm: month, Shadow: true}}, 1 << 50, 1, 1 << 50},
		{"only a shadow, often", []core.PolicyConfig{{Name: "s", Algorithm: month, Shadow: true}}, math.MaxInt64, 1, -1},
		{
			"only a shadow, often, of a high cost",
			[]core.PolicyConfig{{Name: "s", Algorithm: many, Shadow: true}}, math.MaxInt64, 2048, -1,
		},
		{
			"a small shadow beside a large limit",
			[]core.PolicyConfig{{Name: "s", Algorithm: month, Shadow: true}, {Name: "p", Algorithm: core.PerSecond(1_000_000_000)}},
			math.MaxInt64, 1, 1_000_000_000,
		},
		{"a high cost", []core.PolicyConfig{{Name: "p", Algorithm: many}}, math.MaxInt64, 1 << 40, 909},
		{
			"a high cost of a quota",
			[]core.PolicyConfig{{Name: "p", Algorithm: many, Raisable: true}}, math.MaxInt64, 2048, 488_281_250_000,
		},
		{
			"the largest burst",
			[]core.PolicyConfig{{Name: "p", Algorithm: core.TokenBucket{Rate: 1 << 42, Per: 1, Burst: 1<<53 - 1}}},
			math.MaxInt64, 1, 1<<53 - 1,
		},
		{
			"the longest capacity beside a long shadow",
			[]core.PolicyConfig{
				{Name: "p", Algorithm: core.TokenBucket{Rate: 1 << 42, Per: 36524 * 24 * time.Hour, Burst: 1 << 42}},
				{Name: "s", Algorithm: core.TokenBucket{Rate: 1, Per: 36524 * 24 * time.Hour, Burst: 1}, Shadow: true},
			},
			math.MaxInt64, 1, 1 << 42,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ask := func(t *testing.T, g *core.Gate) string {
				var charges []core.Charge
				for _, cfg := range tt.policies {
					charges = append(charges, core.Charge{Policy: newPolicy(t, cfg), Key: newKey(t, "k"), Cost: tt.each})
				}
				granted, d, err := g.SpendUpTo(t.Context(), tt.times, charges...)
				if err != nil || d.Cause != nil {
					t.Fatal(err, d.Cause)
				}
				if granted <= 0 || tt.want >= 0 && granted != tt.want {
					t.Errorf("granted %d, want %d", granted, tt.want)
				}
				return fmt.Sprint(granted, show(d), show(peek(t, g, charges...)))
			}
			c := newClock()
			memory := ask(t, memoryGate(t, core.Config{Clock: c.Now}))
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				client := s.Client(t)
				redistest.ReplayUnderLua54(t, client)
				g := redisGate(t, client, core.Config{Prefix: s.Prefix, DisableDenialCache: true, Clock: c.Now})
				g.InjectClock(micros(c))
				if seen := ask(t, g); seen != memory {
					t.Errorf("differs from memory:\n%s\nmemory:\n%s", seen, memory)
				}
			})
		})
	}
}

// The largest numbers that a script can meet are exact: the longest capacity and the finest
// fraction, refunded until the remembered refunds reach their cap, at the end of 2050.
func TestLargestNumbersAreExact(t *testing.T) {
	t.Parallel()
	const (
		exact   = 1 << 53
		century = 36525 * 24 * 3600 * 1_000_000 // microseconds
		now     = 2_556_143_999_000_000         // the end of 2050
		back    = 2 * 3600 * 1_000_000          // the largest step back of the clock
		finest  = 1000 << 42                    // the largest denominator
	)
	for name, sum := range map[string]int64{
		"receipt: arrival and refunds":        now + century + century,
		"backlog and cost":                    century + century,
		"refunds, and a backlog beyond reach": century + century + back,
		"two fractions before the carry":      2*finest - 1,
		"twice a sum that SpendUpTo keeps":    century + century,
		"TTL in milliseconds":                 century/1000 + 86_400_000,
	} {
		if sum >= exact {
			t.Errorf("%s: %d is above 2^53 by %d", name, sum, sum-exact)
		}
	}

	policies := []core.PolicyConfig{
		{Name: "longest", Algorithm: core.TokenBucket{Rate: 1, Per: 36525*24*time.Hour - 1000, Burst: 1}},
		{Name: "longest-many", Algorithm: core.TokenBucket{Rate: 1_000_003, Per: 36524 * 24 * time.Hour, Burst: 1_000_003}},
		{Name: "finest", Algorithm: core.TokenBucket{Rate: 1 << 42, Per: 999_999_999, Burst: 1 << 42}},
		{Name: "finest-slow", Algorithm: core.TokenBucket{Rate: 1<<42 - 1, Per: 36524 * 24 * time.Hour, Burst: 1<<42 - 1}},
	}
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		l := newLockstep(t, s)
		l.redis.SplitByOutermost()
		l.memory.SplitByOutermost()
		l.clock.Set(time.UnixMicro(now - century/50))
		var own [2][]*core.Policy
		for _, cfg := range policies {
			l.knows(cfg.Name)
			for i := range own {
				own[i] = append(own[i], newPolicy(t, cfg))
			}
		}
		a, b := newKey(t, "a"), newKey(t, "b")
		for n := range 600 {
			at, deny := l.rng.IntN(len(policies)), l.rng.IntN(4) > 0
			cost := policies[at].Algorithm.(core.TokenBucket).Burst
			switch {
			case n < 3*len(policies): // the whole burst, repeatedly, while nothing is kept yet
				at, deny = n%len(policies), true
				cost = policies[at].Algorithm.(core.TokenBucket).Burst
			case l.rng.IntN(2) == 0:
				cost = 1 + l.rng.Int64N(cost)
			}
			var seen [2]string
			for i, g := range []*core.Gate{l.redis, l.memory} {
				charges := []core.Charge{{Policy: own[i][at], Key: a, Cost: cost}}
				if deny {
					// A policy that has not denied yet goes last, so that the earlier part is
					// refunded.
					charges = append(charges, core.Charge{Policy: limited(t, "shut", core.PerSecond(1)), Key: b, Cost: 2})
				}
				d, err := g.Decide(context.Background(), charges...)
				seen[i] = fmt.Sprint(show(d), err)
			}
			if seen[0] != seen[1] {
				t.Fatalf("operation %d:\nredis:  %s\nmemory: %s", n, seen[0], seen[1])
			}
			l.compareStates()
			if l.rng.IntN(3) == 0 {
				l.clock.Advance(time.Duration(l.rng.Int64N(century/50/600*2)-back/1000) * time.Microsecond)
			}
		}
	})
}
