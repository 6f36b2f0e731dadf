package core_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

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
		if _, err := l.AllowN(t.Context(), key, -1); !errors.Is(err, core.ErrCharge) {
			t.Errorf("AllowN of -1: %v", err)
		}
		if _, err := l.Allow(t.Context(), core.Key{}); !errors.Is(err, core.ErrKey) {
			t.Errorf("Allow of no key: %v", err)
		}
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
		if d := decide(t, g, c, c); d.Allowed {
			t.Errorf("beyond 64 bits: %s", show(d))
		}
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
