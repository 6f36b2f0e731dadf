package core_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/request"
)

func TestInvalidCharges(t *testing.T) {
	t.Parallel()
	p, q := limited(t, "p", core.PerSecond(1)), limited(t, "p", core.PerSecond(2))
	key := newKey(t, "k")
	good := core.Charge{Policy: p, Key: key, Cost: 1}
	tests := []struct {
		name    string
		charges []core.Charge
		want    error
	}{
		{"none", nil, core.ErrCharge},
		{"17", make([]core.Charge, 17), core.ErrCharge},
		{"nil policy", []core.Charge{good, {Key: key, Cost: 1}}, core.ErrCharge},
		{"negative cost", []core.Charge{good, {Policy: p, Key: key, Cost: -2}}, core.ErrCharge},
		{"smallest cost", []core.Charge{{Policy: p, Key: key, Cost: math.MinInt64}}, core.ErrCharge},
		{"zero key", []core.Charge{good, {Policy: p, Cost: 1}}, core.ErrKey},
		{"two policies of one name", []core.Charge{good, {Policy: q, Key: key, Cost: 1}}, core.ErrCharge},
		{"two policies of one name on two keys", []core.Charge{good, {Policy: q, Key: newKey(t, "l"), Cost: 1}}, core.ErrCharge},
	}
	eachOpen(t, func(t *testing.T, _ *core.ManualClock, open func(core.Config) *core.Gate) {
		g, observed := open(core.Config{}), open(core.Config{Observe: func(context.Context, core.Event) {}})
		for _, tt := range tests {
			d, err := g.Decide(t.Context(), tt.charges...)
			if !errors.Is(err, tt.want) || d.Allowed || d.Len() != 0 {
				t.Errorf("%s: Decide: %v, %v", tt.name, d.Allowed, err)
			}
			if _, again := observed.Decide(t.Context(), tt.charges...); fmt.Sprint(again) != fmt.Sprint(err) {
				t.Errorf("%s: %v, and observed %v", tt.name, err, again)
			}
			if d, err = g.Peek(t.Context(), tt.charges...); !errors.Is(err, tt.want) || d.Allowed {
				t.Errorf("%s: Peek: %v", tt.name, err)
			}
			if n, d, err := g.SpendUpTo(t.Context(), 1, tt.charges...); !errors.Is(err, core.ErrCharge) && !errors.Is(err, core.ErrKey) || d.Allowed || n != 0 {
				t.Errorf("%s: SpendUpTo: %v", tt.name, err)
			}
		}
		if _, _, err := g.SpendUpTo(t.Context(), -1, good); !errors.Is(err, core.ErrCharge) {
			t.Errorf("SpendUpTo -1 times: %v", err)
		}
		if d := peek(t, g, good); !d.Allowed {
			t.Error("something was spent")
		}
	})
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	p, q := limited(t, "p", frozen(3)), limited(t, "q", frozen(2))
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		for name, policies := range map[string][]*core.Policy{
			"none": {}, "nil": {p, nil}, "two policies of one name": {p, limited(t, "p", frozen(9))}, "too many": make([]*core.Policy, 17),
		} {
			if l, err := core.NewLimiter(g, policies...); !errors.Is(err, core.ErrCharge) || l != nil {
				t.Errorf("%s: %v, %v", name, l, err)
			}
		}
		input := []*core.Policy{p, q}
		l := gatetest.Must(core.NewLimiter(g, input...))(t)
		input[0] = nil // the Limiter has its own copy
		key := newKey(t, "k")
		for i, want := range []bool{true, true, false} {
			d, err := l.Allow(t.Context(), key)
			if err != nil || d.Allowed != want || d.Len() != 2 || d.At(0).Policy != p {
				t.Errorf("%d: %s, %v", i, show(d), err)
			}
		}
		if d, err := l.AllowN(t.Context(), newKey(t, "l"), 3); err != nil || d.Allowed || d.At(1).Allowed {
			t.Errorf("%s, %v", show(d), err)
		}
		gatetest.Is(t, gatetest.Err(l.Allow(t.Context(), core.Key{})), core.ErrKey, "Allow of no key")
	})
}

func TestChargesOfOneKeyAreSummed(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		c := core.Charge{Policy: limited(t, "p", frozen(5)), Key: newKey(t, "k"), Cost: 2}
		if d := decide(t, g, c, c, c); d.Allowed || d.At(0).Used != 0 {
			t.Errorf("6 of 5: %s", show(d))
		}
		one, none := core.Charge{Policy: c.Policy, Key: c.Key}, core.Charge{Policy: c.Policy, Key: c.Key, Cost: core.NoCost}
		if d := decide(t, g, one, c, none, one); !d.Allowed || d.At(0).Used != 4 || d.At(3).Used != 4 {
			t.Errorf("4 of 5: %s", show(d))
		}
		c.Cost = math.MaxInt64
		denies(t, g, c, c)
		c.Key = newKey(t, "l")
		if n, d, err := atMost(g, t.Context(), c, c); n != 2 || err != nil || d.At(0).Used != 4 {
			t.Errorf("SpendUpTo granted %d: %s, %v", n, show(d), err)
		}
	})
}

func TestShadowNeverDenies(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		key := newKey(t, "k")
		shadow := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "s", Algorithm: frozen(2), Shadow: true}), Key: key, Cost: 1}
		p := core.Charge{Policy: limited(t, "p", frozen(4)), Key: key, Cost: 1}
		for i := range 5 {
			d := decide(t, g, shadow, p)
			wait := d.RetryAfter()
			if d.Allowed != (i < 4) || d.At(0).Allowed != (i < 2) || d.At(0).Used != int64(min(i+1, 2)) || d.Allowed && wait != 0 {
				t.Errorf("%d: %s", i, show(d))
			}
		}
		// A shadow is not charged if another policy denies.
		noError(t, g.Reset(t.Context(), core.Charge{Policy: shadow.Policy, Key: key}))
		if d := decide(t, g, shadow, p); d.Allowed || d.At(0).Used != 0 || !d.At(0).Allowed {
			t.Errorf("a denial charged a shadow: %s", show(d))
		}
	})
}

func TestClosedGateRejectsCalls(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		c := core.Charge{Policy: limited(t, "p", core.PerSecond(1)), Key: newKey(t, "k"), Cost: 1}
		decide(t, g, c)
		for range 2 {
			noError(t, g.Close(t.Context()))
		}
		d, err := g.Decide(t.Context(), c)
		_, _, errAtMost := atMost(g, t.Context(), c)
		_, errPeek := g.Peek(t.Context(), c)
		_, errAdjust := g.Adjust(t.Context(), core.Adjustment{ID: "a", Policy: limited(t, "q", frozen(1)), Key: c.Key, Units: 1})
		for name, err := range map[string]error{
			"Decide": err, "Peek": errPeek, "SpendUpTo": errAtMost, "Reset": g.Reset(t.Context(), c), "Ping": g.Ping(t.Context()),
			"Adjust": errAdjust,
		} {
			if !errors.Is(err, core.ErrClosed) || d.Allowed {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestEndedContextSpendsNothing(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock, takeSnapshot snapshot) {
		c := core.Charge{Policy: limited(t, "p", frozen(1)), Key: newKey(t, "k"), Cost: 1}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Hour))
		defer cancel()
		for want, ctx := range map[error]context.Context{context.Canceled: cancelled, context.DeadlineExceeded: late} {
			d, err := g.Decide(ctx, c)
			if !errors.Is(err, want) || d.Allowed || d.Cause != nil {
				t.Errorf("%v, %v", err, d.Cause)
			}
		}
		if all := takeSnapshot(t); len(all) > 0 {
			t.Errorf("charged: %v", all)
		}
	})
}

func TestObserve(t *testing.T) {
	t.Parallel()
	var seen []string
	observe := func(_ context.Context, e core.Event) {
		switch e := e.(type) {
		case *core.DecisionEvent:
			seen = append(seen, fmt.Sprint(
				e.Op, " ", e.Decision.Allowed, " ", e.Decision.Len(), " ", e.Err != nil))
			if e.Took < 0 {
				t.Errorf("%s took %v", e.Op, e.Took)
			}
		case *core.KeyEvent:
			seen = append(seen, fmt.Sprint(e.Op, " ", e.Policy != nil, " ", e.Err != nil))
		case *core.ServerEvent: // a new server lacks the script
		default:
			t.Errorf("%T", e)
		}
	}
	check := func(t *testing.T, g *core.Gate) {
		seen = nil
		ctx := t.Context()
		c := core.Charge{Policy: limited(t, "p", frozen(1)), Key: newKey(t, "k"), Cost: 1}
		decide(t, g, c)
		decide(t, g, c)
		peek(t, g, c)
		_, _, _ = atMost(g, ctx, c)
		_ = g.Reset(ctx, c)
		_, _ = g.Decide(ctx)
		want := []string{
			"decide true 1 false", "decide false 1 false", "peek false 1 false", "spend up to false 1 false", "reset true false", "decide false 0 true",
		}
		if strings.Join(seen, "; ") != strings.Join(want, "; ") {
			t.Errorf("got %q\nwant %q", seen, want)
		}
	}
	eachOpen(t, func(t *testing.T, _ *core.ManualClock, open func(core.Config) *core.Gate) {
		check(t, open(core.Config{Observe: observe}))
	})
}

// A foreign value under a Gate's key is not an outage: every decision on it reports the fault and
// denies. A Reset heals it.
func TestForeignValueIsMisconfiguration(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client := s.Client(t)
		ctx := t.Context()
		g := redisGate(t, client, core.Config{Prefix: s.Prefix})
		for name, write := range map[string]func(key string) error{
			"list":       func(key string) error { return client.LPush(ctx, key, "x").Err() },
			"hash":       func(key string) error { return client.HSet(ctx, key, "a", "b").Err() },
			"text":       func(key string) error { return client.Set(ctx, key, "hello", time.Hour).Err() },
			"empty text": func(key string) error { return client.Set(ctx, key, "", 0).Err() },
		} {
			for i, mode := range []core.FailureMode{core.FailLocal, core.FailOpen, core.FailClosed} {
				p := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: core.PerHour(1), OnFailure: mode})
				c := core.Charge{Policy: p, Key: newKey(t, name, fmt.Sprint(i)), Cost: 1}
				noError(t, write(s.Prefix+":"+c.Key.String()+request.BundleSuffix))
				for range 5 { // the circuit never opens
					d, err := g.Decide(ctx, c)
					if !errors.Is(err, core.ErrMisconfigured) || d.Allowed || !errors.Is(d.Cause, core.ErrMisconfigured) || d.Source != core.SourceClosed {
						t.Errorf("%s, mode %d: %s from %v, %v", name, mode, show(d), d.Source, err)
					}
				}
				if err := g.Reset(ctx, c); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if d := decide(t, g, c); !d.Allowed || d.At(0).Used != 1 || d.Source != core.SourceRedis {
					t.Errorf("after %s and a reset: %s from %v", name, show(d), d.Source)
				}
			}
		}
	})
}

func TestSpendUpToSpendsCostsSeveralTimes(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		key := newKey(t, "k")
		requests := core.Charge{Policy: limited(t, "requests", frozen(10)), Key: key, Cost: 1}
		tokens := core.Charge{Policy: limited(t, "tokens", frozen(70)), Key: key, Cost: 20}
		n, d, err := g.SpendUpTo(t.Context(), 8, requests, tokens)
		if n != 3 || err != nil || !d.Allowed || d.At(0).Used != 3 || d.At(1).Used != 60 {
			t.Errorf("granted %d: %s, %v", n, show(d), err)
		}
		requests.Cost = 8 // does not fit
		if n, d, err := g.SpendUpTo(t.Context(), 0, requests); n != 0 || err != nil || !d.Allowed || d.At(0).Allowed {
			t.Errorf("0 times: granted %d: %s, %v", n, show(d), err)
		}
		tokens.Cost = core.NoCost
		if n, d, err := g.SpendUpTo(t.Context(), 100, tokens); n != 100 || err != nil {
			t.Errorf("without a cost: granted %d: %s, %v", n, show(d), err)
		}
		many := core.Charge{Policy: limited(t, "many", frozen(2000)), Key: key, Cost: 1}
		strikes := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "strikes", Shadow: true, Algorithm: core.Block{
			Strikes: 3, Within: time.Minute, For: time.Minute,
		}}), Key: key, Cost: 1}
		if n, d, err := g.SpendUpTo(t.Context(), 2000, many, strikes); n != 2000 || err != nil || d.At(1).Used != 3 {
			t.Errorf("beside a shadow of a Block: granted %d: %s, %v", n, show(d), err)
		}
		wantUsed(t, g, strikes.Policy, key, 3)
	})
}

func TestResultsAreInOrderOfCharges(t *testing.T) {
	g := memoryGate(t, core.Config{})
	var charges []core.Charge
	for i := range 6 {
		charges = append(charges, core.Charge{Policy: limited(t, fmt.Sprint("p", i), frozen(1)), Key: newKey(t, "k"), Cost: 1})
	}
	d := decide(t, g, charges...)
	var names []string
	for i, r := range d.Results() {
		gatetest.Equal(t, r, d.At(i), "result %d", i)
		names = append(names, r.Policy.Name())
		if i == 4 {
			break
		}
	}
	gatetest.Equal(t, strings.Join(names, " "), "p0 p1 p2 p3 p4", "results of")
}

func TestEnumerationsHaveNames(t *testing.T) {
	gatetest.Names(t, core.FailLocal, core.FailOpen, core.FailClosed, core.FailureMode(9))
	gatetest.Names(t, core.TopologyAuto, core.TopologyOneServer, core.TopologyCluster, core.Topology(9))
	gatetest.Names(t, core.PeriodMinute, core.PeriodHour, core.PeriodDay, core.PeriodWeek, core.PeriodMonth, core.PeriodYear, core.Period(9))
	gatetest.Names(t, core.UnitRequests, core.UnitTokens, core.UnitInputTokens, core.UnitOutputTokens, core.UnitMicroDollars,
		core.UnitContentBytes, core.Unit(9))
	gatetest.Names(t, core.SourceNone, core.SourceRedis, core.SourceMemory, core.SourceOpen, core.SourceLocal, core.SourceClosed,
		core.SourceCache)
	gatetest.Names(t, core.OpDecide, core.OpScriptMissing, core.Op(99))
}

func TestMustPanicsWithConstructorsError(t *testing.T) {
	if p := core.Must(core.NewPolicy(core.PolicyConfig{Name: "p", Algorithm: frozen(1)})); p.Name() != "p" {
		t.Errorf("policy %q", p.Name())
	}
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "PolicyConfig.Name") {
			t.Errorf("panic %v", err)
		}
	}()
	core.Must(core.NewPolicy(core.PolicyConfig{Algorithm: frozen(1)}))
}

// Decide returns the fault of a Charge.Limit, wherever the charge stands, and spends nothing.
func TestChargesLimitIsValidated(t *testing.T) {
	t.Parallel()
	window := core.Window{Limit: 1, Width: time.Hour}
	limits := map[string]core.Algorithm{
		"too many windows":       core.SlidingLog{Windows: make([]core.Window, 9)},
		"no windows":             core.SlidingLog{},
		"a window without width": core.SlidingLog{Windows: []core.Window{window, {}}},
		"negative":               core.TokenBucket{Rate: -1},
		"pointer":                &core.TokenBucket{Rate: 1, Per: time.Second, Burst: 1},
		"nil pointer":            (*core.TokenBucket)(nil),
	}
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		good := core.Charge{Policy: limited(t, "good", frozen(1)), Key: newKey(t, "k"), Cost: 1}
		bad := core.Charge{Policy: limited(t, "bad", frozen(1)), Key: good.Key, Cost: 1}
		bad.Limit = core.SlidingLog{Windows: []core.Window{window}}
		decide(t, g, bad) // a log that begins like an invalid one is known
		for name, own := range limits {
			bad.Limit = own
			for _, charges := range [][]core.Charge{{bad}, {bad, good}, {good, bad}} {
				if d, err := g.Decide(t.Context(), charges...); err == nil || d.Allowed || d.Len() > 0 {
					t.Errorf("%s: %v, %s", name, err, show(d))
				}
			}
		}
		if d := peek(t, g, good); !d.Allowed {
			t.Error("something was spent")
		}
	})
}

// snapshot returns everything that a store holds, byte for byte, with the expiry times of the keys.
type snapshot func(t *testing.T) map[string]string

func redisSnapshot(client *redis.Client, s *redistest.Server) snapshot {
	return func(t *testing.T) map[string]string {
		t.Helper()
		ctx := t.Context()
		all := make(map[string]string)
		for _, name := range client.Keys(ctx, s.Prefix+"*").Val() {
			if !s.Real {
				// The TTLs of a miniredis do not count down.
				all[name] = fmt.Sprint(client.Get(ctx, name).Val(), client.PTTL(ctx, name).Val())
				continue
			}
			// The absolute expiry time, in milliseconds, does not count down either.
			at, err := client.PExpireTime(ctx, name).Result()
			if err != nil {
				t.Logf("no expiry times: %v", err) // before Redis 7
			}
			all[name] = fmt.Sprintf("%q %d", client.Dump(ctx, name).Val(), at)
		}
		return all
	}
}

func eachStore(t *testing.T, f func(t *testing.T, g *core.Gate, c *core.ManualClock, takeSnapshot snapshot)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		c := newClock()
		g := memoryGate(t, core.Config{Clock: c.Now})
		f(t, g, c, func(*testing.T) map[string]string { return g.Values() })
	})
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		c := newClock()
		client := s.Client(t)
		g := redisGate(t, client, core.Config{Prefix: s.Prefix, DisableDenialCache: true})
		g.InjectClock(micros(c))
		f(t, g, c, redisSnapshot(client, s))
	})
}

// spendsNothing reports the keys that a call changed. The call must not change any.
func spendsNothing(t *testing.T, takeSnapshot snapshot, what string, call func() bool) {
	t.Helper()
	before := takeSnapshot(t)
	if !call() {
		t.Errorf("%s: unexpected outcome", what)
	}
	if after := takeSnapshot(t); !maps.Equal(before, after) {
		t.Errorf("%s changed\n%v\nto\n%v", what, before, after)
	}
}

// Each algorithm denies at every position, beside every other algorithm on the key of a tenant and on
// that of its user. Its denial creates no fresh key and changes no used one.
func TestDenialSpendsNothing(t *testing.T) {
	t.Parallel()
	others := append(limitsOfTen[:len(limitsOfTen):len(limitsOfTen)], namedLimit{"unlimited", core.Unlimited{}})
	deniers := append(limitsOfTen[:len(limitsOfTen):len(limitsOfTen)], namedLimit{"deny all", core.DenyAll{}})
	const policies = 5
	for len(others)%(policies-1) != 0 {
		others = append(others, limitsOfTen[0])
	}
	eachStore(t, func(t *testing.T, g *core.Gate, c *core.ManualClock, takeSnapshot snapshot) {
		ctx, n := t.Context(), 0
		for _, denier := range deniers {
			for at := range policies {
				for from := 0; from < len(others); from += policies - 1 {
					if n++; n%7 != 0 && !long() && !strings.Contains(t.Name(), "memory") {
						continue
					}
					used := n%2 == 0
					keys := []core.Key{newKey(t, "t", strconv.Itoa(n)), newKey(t, "t", strconv.Itoa(n), "u")}
					rest := others[from:]
					var charges []core.Charge
					what := "used " + strconv.FormatBool(used)
					for i := range policies {
						l := denier
						if i != at {
							l, rest = rest[0], rest[1:]
						}
						what += ", " + l.name
						charges = append(charges, core.Charge{Policy: limited(t, fmt.Sprintf("p%d", i), l.algorithm), Key: keys[i%2], Cost: 1})
					}
					for i, charge := range charges {
						if i == at {
							charge.Cost = 10
						} else if !used {
							continue
						}
						decide(t, g, charge)
					}
					c.Advance(time.Second)
					named := func(d core.Decision) bool {
						for i := range charges {
							if r := d.At(i); r.Allowed != (i != at) || (r.RetryAfter > 0) != (i == at) || r.Violates(0) == r.Allowed {
								t.Errorf("%s: %s", what, show(d))
								break
							}
						}
						return !d.Allowed
					}
					spendsNothing(t, takeSnapshot, "Decide, "+what, func() bool { return named(decide(t, g, charges...)) })
					spendsNothing(t, takeSnapshot, "Peek, "+what, func() bool { return named(peek(t, g, charges...)) })
					spendsNothing(t, takeSnapshot, "SpendUpTo, "+what, func() bool {
						granted, d, err := atMost(g, ctx, charges...)
						return named(d) && granted == 0 && err == nil
					})
					spendsNothing(t, takeSnapshot, "Reserve, "+what, func() bool {
						// Within this time the one unit in a used queue leaks, but an empty bucket
						// gains no token.
						r, d, err := g.Reserve(ctx, 10*time.Minute, charges...)
						return named(d) && r == nil && err == nil
					})
					for _, charge := range charges {
						noError(t, g.Reset(ctx, core.Charge{Policy: charge.Policy, Key: charge.Key}))
					}
				}
			}
		}
		if all := takeSnapshot(t); len(all) > 0 {
			t.Errorf("keys remain: %v", all)
		}
	})
}

func TestNoKeyIsCreatedWithoutSpending(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock, takeSnapshot snapshot) {
		key := newKey(t, "fresh")
		p, q := limited(t, "p", core.PerSecond(3)), limited(t, "q", frozen(3))
		shadow := newPolicy(t, core.PolicyConfig{Name: "s", Algorithm: core.PerSecond(3), Shadow: true})
		one := core.Charge{Policy: p, Key: key, Cost: 1}
		spendsNothing(t, takeSnapshot, "a peek that allows", func() bool {
			return peek(t, g, one, core.Charge{Policy: shadow, Key: key, Cost: 1}).Allowed
		})
		spendsNothing(t, takeSnapshot, "costs of 0", func() bool {
			return decide(t, g, core.Charge{Policy: p, Key: key, Cost: core.NoCost}, core.Charge{Policy: q, Key: key, Cost: core.NoCost}).Allowed
		})
		spendsNothing(t, takeSnapshot, "a shadow that does not fit", func() bool {
			return decide(t, g, core.Charge{Policy: shadow, Key: key, Cost: 4}).Allowed
		})
		if all := takeSnapshot(t); len(all) > 0 {
			t.Errorf("keys were created: %v", all)
		}
	})
}

// A denied reservation marks only the charges that deny. The others are allowed and have no wait,
// in whatever script they are decided.
func TestDeniedReservationNamesOnlyDenyingCharges(t *testing.T) {
	t.Parallel()
	for _, split := range []bool{false, true} {
		eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
			if split {
				g.SplitByOutermost()
			}
			key, other := newKey(t, fmt.Sprint(split)), newKey(t, fmt.Sprint(split, "other"))
			later := core.Charge{Policy: limited(t, "later", core.PerMinute(1)), Key: key, Cost: 1}
			decide(t, g, later)
			empty := core.Charge{Policy: limited(t, "empty", frozen(1)), Key: other, Cost: 1}
			decide(t, g, empty)
			decide(t, g, empty)
			for _, denier := range []core.Charge{empty, {Policy: limited(t, "none", core.DenyAll{}), Key: key, Cost: 1}} {
				r, d := reserve(t, g, time.Hour, later, denier)
				if first := d.At(0); r != nil || !first.Allowed || first.RetryAfter != 0 || d.At(1).Allowed {
					t.Errorf("split %v, %s: %s", split, denier.Policy.Name(), show(d))
				}
			}
		})
	}
}
