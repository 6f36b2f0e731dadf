package core_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// plans are the limits of a key that changes its plan.
var plans = []core.Algorithm{frozen(3), frozen(5), core.SlidingWindow{Limit: 3, Window: time.Hour}}

func TestCachedDenialIsDropped(t *testing.T) {
	t.Parallel()
	c := func(t *testing.T, cost int64) core.Charge {
		return core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: changing(plans...)}), Key: newKey(t, "k"), Cost: cost}
	}
	tests := []struct {
		name    string
		do      func(t *testing.T, gates *cachedGate, c core.Charge, r *core.Reservation) core.Decision
		allowed bool
		source  core.Source
	}{
		{"nothing", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			return decide(t, gates.Gate, c)
		}, false, core.SourceCache},
		{"the same cost, by its zero value", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			c.Cost = 0
			return decide(t, gates.Gate, c)
		}, false, core.SourceCache},
		{"Peek", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			return peek(t, gates.Gate, c)
		}, false, core.SourceRedis},
		{"SpendUpTo", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			_, d, err := atMost(gates.Gate, t.Context(), c)
			if err != nil {
				t.Error(err)
			}
			return d
		}, false, core.SourceRedis},
		{"Reserve", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			_, d := reserve(t, gates.Gate, time.Hour, c)
			return d
		}, false, core.SourceRedis},
		{"a smaller cost", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			c.Cost = core.NoCost
			return decide(t, gates.Gate, c)
		}, true, core.SourceRedis},
		{"Reset", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			worked(t, gates.Reset(t.Context(), c))
			return decide(t, gates.Gate, c)
		}, true, core.SourceRedis},
		{"Cancel", func(t *testing.T, gates *cachedGate, c core.Charge, r *core.Reservation) core.Decision {
			cancel(t, r)
			return decide(t, gates.Gate, c)
		}, true, core.SourceRedis},
		{"Settle for less", func(t *testing.T, gates *cachedGate, c core.Charge, r *core.Reservation) core.Decision {
			settle(t, r, 1)
			return decide(t, gates.Gate, c)
		}, true, core.SourceRedis},
		{"Settle for more", func(t *testing.T, gates *cachedGate, c core.Charge, r *core.Reservation) core.Decision {
			settle(t, r, 4)
			return decide(t, gates.Gate, c)
		}, false, core.SourceRedis},
		{"a raised limit", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			d, err := gates.Decide(t.Context(), under(1, c)...)
			if err != nil {
				t.Error(err)
			}
			return d
		}, true, core.SourceRedis},
		{"another algorithm", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			d, err := gates.Decide(t.Context(), under(2, c)...)
			if err != nil {
				t.Error(err)
			}
			return d
		}, true, core.SourceRedis},
		{"another policy of the same name", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			c.Policy = limited(t, "p", plans[1])
			return decide(t, gates.Gate, c)
		}, true, core.SourceRedis},
		{"Reset by another process, at once", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			worked(t, gates.uncached.Reset(t.Context(), c))
			gates.clock.Advance(time.Second - time.Microsecond)
			return decide(t, gates.Gate, c)
		}, false, core.SourceCache},
		{"Reset by another process, a second later", func(t *testing.T, gates *cachedGate, c core.Charge, _ *core.Reservation) core.Decision {
			worked(t, gates.uncached.Reset(t.Context(), c))
			gates.clock.Advance(time.Second)
			return decide(t, gates.Gate, c)
		}, true, core.SourceRedis},
		{"a charge that a later denial refunds", func(t *testing.T, gates *cachedGate, c core.Charge, r *core.Reservation) core.Decision {
			settle(t, r, 2)
			gates.SplitByOutermost()
			full := core.Charge{Policy: limited(t, "full", frozen(1)), Key: newKey(t, "other"), Cost: 1}
			decide(t, gates.Gate, full)
			c.Cost = 1
			if d := decide(t, gates.Gate, c, full); d.Allowed || !d.At(0).Allowed {
				t.Errorf("not refunded: %s", show(d))
			}
			return decide(t, gates.Gate, c)
		}, true, core.SourceRedis},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachCachedGate(t, func(t *testing.T, gates *cachedGate) {
				c := c(t, 3)
				r, _ := reserve(t, gates.Gate, 0, c)
				c.Cost = 1
				decide(t, gates.Gate, c)
				if gates.asksRedis(func() { decide(t, gates.Gate, c) }) {
					t.Error("the denial is not cached")
				}
				if d := tt.do(t, gates, c, r); d.Allowed != tt.allowed || d.Source != tt.source {
					t.Errorf("%v: %s", d.Source, show(d))
				}
			})
		})
	}
}

// A decision under a shorter window ends the window of a cached denial. The denial outlives that
// until a second is over.
func TestCachedDenialOutlivesShorterWindow(t *testing.T) {
	t.Parallel()
	eachCachedGate(t, func(t *testing.T, gates *cachedGate) {
		long, short := core.FixedWindow{Limit: 1, Window: time.Minute, FromFirst: true}, core.FixedWindow{Limit: 1, Window: 100 * time.Millisecond, FromFirst: true}
		c := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: changing(long, short)}), Key: newKey(t, "k"), Cost: 1}
		decide(t, gates.Gate, c)
		decide(t, gates.Gate, c)
		other := c
		other.Limit = short
		peek(t, gates.Gate, other)
		gates.clock.Advance(time.Second - time.Microsecond)
		if d := decide(t, gates.Gate, c); d.Allowed || d.Source != core.SourceCache {
			t.Errorf("within a second: %v, %s", d.Source, show(d))
		}
		gates.clock.Advance(time.Microsecond)
		if d := decide(t, gates.Gate, c); !d.Allowed {
			t.Errorf("after a second: %s", show(d))
		}
	})
}

// Neither a denial nor a reset whose reply is late hides that the key was reset.
func TestConcurrentDenialAndReset(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, slow := range []string{"evalsha", "del"} {
		t.Run(slow, func(t *testing.T) {
			client := s.Client(t)
			g := redisGate(t, client, core.Config{Prefix: s.Prefix + slow[:1]})
			one := core.FixedWindow{Limit: 1, Window: 24 * time.Hour, FromFirst: true}
			c := core.Charge{Policy: limited(t, "p", one), Key: newKey(t, "k"), Cost: 1}
			decide(t, g, c)
			if slow == "del" {
				decide(t, g, c)
			}
			// Replies to one command are held after the server has run it.
			held, let := make(chan struct{}), make(chan struct{})
			client.AddHook(gatetest.OnCommands(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				err := send()
				if cmds[0].Name() == slow {
					held <- struct{}{}
					<-let
				}
				return err
			}))
			done := make(chan core.Decision, 1)
			reset := func() {
				worked(t, g.Reset(context.Background(), c))
			}
			if slow == "evalsha" {
				go func() { d, _ := g.Decide(context.Background(), c); done <- d }()
				<-held
				reset()
			} else {
				go func() { reset(); done <- core.Decision{} }()
				<-held
				if d := decide(t, g, c); !d.Allowed {
					t.Errorf("during the reset: %s", show(d))
				}
				decide(t, g, c)
			}
			let <- struct{}{}
			if d := <-done; d.Allowed {
				t.Errorf("held: %s", show(d))
			}
			if slow == "evalsha" {
				go func() {
					<-held
					let <- struct{}{}
				}()
			}
			d := decide(t, g, c)
			if allowed := slow == "evalsha"; d.Allowed != allowed || d.Source != core.SourceRedis {
				t.Errorf("%v: %s", d.Source, show(d))
			}
		})
	}
}
