package core_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/redistest"
)

// guardian drives one key under a Block.
type guardian struct {
	*testing.T
	gate   *core.Gate
	clock  *core.ManualClock
	policy *core.Policy
	key    core.Key
}

func newGuardian(t *testing.T, g *core.Gate, c *core.ManualClock, b core.Block) *guardian {
	return &guardian{t, g, c, limited(t, "logins", b), newKey(t, "user")}
}

func blocklist(t testing.TB, g *core.Gate, p *core.Policy) *core.Blocklist {
	t.Helper()
	return gatetest.Must(core.NewBlocklist(g, p))(t)
}

// rest returns how long the key is still blocked.
func (g *guardian) rest() time.Duration {
	g.Helper()
	d := decide(g, g.gate, core.Charge{Policy: g.policy, Key: g.key, Cost: core.NoCost})
	if p := peek(g, g.gate, core.Charge{Policy: g.policy, Key: g.key, Cost: 1}); p.Allowed != d.Allowed || p.RetryAfter() != d.RetryAfter() {
		g.Errorf("a Peek tells %s, a Decide %s", show(p), show(d))
	}
	return d.RetryAfter()
}

func (g *guardian) want(rest time.Duration) {
	g.Helper()
	if got := g.rest(); got != rest {
		g.Errorf("blocked for %v, want %v", got, rest)
	}
}

// blockVectors are histories under a Block, whose units are strikes.
var blockVectors = []vector{
	{name: "block of an hour for five failures in ten minutes",
		limits: []core.Algorithm{core.Block{Strikes: 5, Within: 10 * time.Minute, For: time.Hour}}},
	{name: "block that grows, and is forgiven after an hour of quiet", limits: []core.Algorithm{core.Block{
		Strikes: 1, Within: time.Minute, For: time.Minute, Most: 5 * time.Minute, Forgive: time.Hour,
	}}},
	{name: "forgotten strikes",
		limits: []core.Algorithm{core.Block{Strikes: 3, Within: time.Hour, For: time.Minute, Most: time.Hour}}},
	{name: "refunded strike, and one that is settled for more",
		limits: []core.Algorithm{core.Block{Strikes: 2, Within: time.Hour, For: time.Minute}}},
	{name: "forgiven block", limits: []core.Algorithm{core.Block{
		Strikes: 2, Within: time.Hour, For: time.Second, Most: time.Hour, Forgive: 10 * time.Hour,
	}}},
}

var inside = core.Inside(hub.Pass{})

// A cooldown is one block with the reason of the one that ends last. What began before it does not
// make the next one longer.
func TestCooldown(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		growth := core.Block{Strikes: 1, Within: time.Second, For: time.Second, Most: 5 * time.Second, Forgive: time.Minute}
		k := newGuardian(t, g, c, growth)
		begin := func(want time.Duration, why int64, cd hub.Cooldown) {
			t.Helper()
			rest, err := inside.Cool(t.Context(), g, k.policy, k.key, growth, cd)
			d := peek(t, g, core.Charge{Policy: k.policy, Key: k.key, Cost: core.NoCost})
			if rest != want || err != nil || d.RetryAfter() != want || want > 0 && inside.Reason(d.At(0)) != why {
				t.Errorf("cools for %v because of %d, %v, %s, want %v because of %d", rest, inside.Reason(d.At(0)), err, show(d), want, why)
			}
		}
		c.Advance(time.Hour)
		begin(time.Second, 2, hub.Cooldown{Age: time.Minute, Reason: 2})
		c.Advance(500 * time.Millisecond)
		begin(500*time.Millisecond, 2, hub.Cooldown{Age: time.Minute, Reason: 1})
		c.Advance(1500 * time.Millisecond)
		begin(0, 0, hub.Cooldown{Age: 2*time.Second + 1000, Reason: 1}) // it was sent before the first cooldown
		begin(2*time.Second, 1, hub.Cooldown{Age: 2 * time.Second, Reason: 1})
		begin(10*time.Second, 3, hub.Cooldown{For: 10 * time.Second, Reason: 3})
		begin(10*time.Second, 3, hub.Cooldown{For: time.Second, Reason: 1})
		c.Advance(10 * time.Second)
		begin(4*time.Second, 1, hub.Cooldown{Age: time.Second, Reason: 1})
		noError(t, g.Reset(t.Context(), core.Charge{Policy: k.policy, Key: k.key}))
		k.want(0)
		begin(time.Second, 1, hub.Cooldown{Age: time.Second, Reason: 1})
	})
}

func TestBlockByHand(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		ctx := t.Context()
		k := newGuardian(t, g, c, core.Block{Strikes: 2, Within: time.Hour, For: time.Minute})
		blocked := blocklist(t, g, k.policy)
		block := func(d time.Duration) {
			t.Helper()
			noError(t, blocked.Block(ctx, k.key, d))
		}
		block(24 * time.Hour)
		k.want(24 * time.Hour)
		block(time.Hour)
		k.want(24 * time.Hour)
		block(48 * time.Hour)
		k.want(48 * time.Hour)
		other := newKey(t, "tenant {1}", "a user", strings.Repeat("x", 100))
		noError(t, blocked.Block(ctx, other, time.Hour))
		decide(t, g, core.Charge{Policy: k.policy, Key: newKey(t, "third"), Cost: 1})
		list := func() map[string]time.Duration {
			all := make(map[string]time.Duration)
			for b, err := range blocked.All(ctx) {
				noError(t, err)
				all[b.Key.String()] = b.Rest
			}
			return all
		}
		want := map[string]time.Duration{k.key.String(): 48 * time.Hour, other.String(): time.Hour}
		if got := list(); !maps.Equal(got, want) {
			t.Errorf("blocked are %v, want %v", got, want)
		}
		for b := range blocked.All(ctx) {
			noError(t, g.Reset(ctx, core.Charge{Policy: k.policy, Key: b.Key}))
			break
		}
		if got := list(); len(got) != 1 {
			t.Errorf("after one was unblocked: %v", got)
		}
		c.Advance(48 * time.Hour)
		if got := list(); len(got) != 0 {
			t.Errorf("after the blocks: %v", got)
		}
	})
}

func TestBlockFaults(t *testing.T) {
	valid := core.Block{Strikes: 5, Within: time.Minute, For: time.Minute}
	g, ctx, key := memoryGate(t, core.Config{}), t.Context(), newKey(t, "k")
	block, bucket := limited(t, "block", valid), limited(t, "bucket", core.PerSecond(1))
	for _, p := range []*core.Policy{nil, new(core.Policy), bucket} {
		if list, err := core.NewBlocklist(g, p); !errors.Is(err, core.ErrCharge) || list != nil {
			t.Errorf("a Blocklist of %v: %v, %v", p, list, err)
		}
	}
	list := blocklist(t, g, block)
	for _, d := range []time.Duration{0, -time.Hour, 26 * 365 * 24 * time.Hour} {
		gatetest.Is(t, list.Block(ctx, key, d), core.ErrCharge, "a block of %v", d)
	}
	gatetest.Is(t, list.Block(ctx, core.Key{}, time.Hour), core.ErrKey, "no key")
	gatetest.Is(t, list.Forget(ctx, core.Key{}), core.ErrKey, "no key")
}

// While Redis does not answer, a Local process blocks keys alone.
func TestBlockDuringOutage(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redistest.Start(t)
	g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, Timeout: shortTimeout})
	key := newKey(t, "k")
	algorithm := core.Block{Strikes: 2, Within: time.Hour, For: time.Hour}
	local := limited(t, "local", algorithm)
	closed := newPolicy(t, core.PolicyConfig{Name: "closed", Algorithm: algorithm, OnFailure: core.FailClosed})
	s.Stop()
	defer s.Continue()
	if err := blocklist(t, g, local).Block(ctx, key, time.Hour); err != nil {
		t.Errorf("a Local policy: %v", err)
	}
	if d, err := g.Decide(ctx, core.Charge{Policy: local, Key: key, Cost: core.NoCost}); d.Allowed || d.Source != core.SourceLocal || err != nil {
		t.Errorf("%s, %v", show(d), err)
	}
	gatetest.Fails(t, blocklist(t, g, closed).Block(ctx, key, time.Hour), "a Closed policy blocks without Redis")
}

func TestBlocklistOnCluster(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cluster := redistest.StartCluster(t, 3)
	g := redisGate(t, cluster.Client(t), core.Config{})
	p := limited(t, "p", core.Block{Strikes: 1, Within: time.Hour, For: time.Hour})
	var want, got []string
	for i := range 30 {
		k := newKey(t, fmt.Sprint("k", i))
		decide(t, g, core.Charge{Policy: p, Key: k, Cost: 1})
		want = append(want, k.String())
	}
	for b, err := range blocklist(t, g, p).All(context.WithoutCancel(ctx)) {
		noError(t, err)
		got = append(got, b.Key.String())
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(slices.Compact(got), want) {
		t.Errorf("blocked are %q", got)
	}
}
