package inspect_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/inspect"
)

// usedOf returns what the first limit of a subject has used.
func usedOf(t *testing.T, i *inspect.Inspector, key core.Key) int64 {
	t.Helper()
	return lookup(t, i, key).Limits[0].Result.Used
}

func TestGiveAndTakeBack(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		for _, a := range []core.Algorithm{
			core.PerMinute(100), core.LeakyBucket{Rate: 1, Per: time.Hour, Capacity: 100},
			core.TokenBucket{Burst: 100}, core.TokenBucket{Rate: 1_000_003, Per: 1000 * time.Hour, Burst: 100},
			core.FixedWindow{Limit: 100, Window: 24 * time.Hour},
			core.FixedWindow{Limit: 100, Window: 24 * time.Hour, FromFirst: true},
			core.Calendar{Limit: 100, Every: core.PeriodYear, In: time.UTC},
		} {
			t.Run(fmt.Sprintf("%T", a), func(t *testing.T) {
				p, key := limited(t, "p", a), newKey(t, "k")
				i := newInspector(t, inspect.Config{Gate: g, Policies: []*core.Policy{p}})
				noError(t, i.Reset(t.Context(), p, key))
				decide(t, g, core.Charge{Policy: p, Key: key, Cost: 100})
				give := func(id string, units, given, used int64) {
					t.Helper()
					got, err := i.Give(t.Context(), p, key, units, id)
					if err != nil || got != given || usedOf(t, i, key) != used {
						t.Errorf("gave %d, %v, want %d; %d used, want %d", got, err, given, usedOf(t, i, key), used)
					}
				}
				id := fmt.Sprintf("%T%v", a, a)
				give(id+"1", 10, 10, 90)
				if inspect.IsQuota(a) {
					give(id+"1", 10, 0, 90) // the same again
				}
				give(id+"2", -10, -10, 100)
				if d := decide(t, g, core.Charge{Policy: p, Key: key}); d.Allowed {
					t.Error("a unit is left")
				}
				give(id+"3", 1000, 100, 0)
				give(id+"4", 5, 0, 0)
			})
		}
		log := limited(t, "log", core.AnyMinute(10))
		i := newInspector(t, inspect.Config{Gate: g, Policies: []*core.Policy{log}})
		if _, err := i.Give(t.Context(), log, newKey(t, "k"), 1, "id"); !errors.Is(err, core.ErrCharge) {
			t.Error(err)
		}
	})
}

// What a running reservation holds is not given back to others.
func TestGiveLeavesWhatIsHeld(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		for _, a := range []core.Algorithm{
			core.PerHour(100), core.TokenBucket{Burst: 100},
			core.Calendar{Limit: 100, Every: core.PeriodYear, In: time.UTC},
		} {
			t.Run(fmt.Sprintf("%T%v", a, inspect.IsQuota(a)), func(t *testing.T) {
				p := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: a, Hold: time.Hour})
				key := newKey(t, fmt.Sprintf("%T%v", a, inspect.IsQuota(a)))
				i := newInspector(t, inspect.Config{Gate: g, Policies: []*core.Policy{p}})
				r, _, err := g.Charge(t.Context(), core.Charge{Policy: p, Key: key, Cost: 60})
				if err != nil {
					t.Fatal(err)
				}
				decide(t, g, core.Charge{Policy: p, Key: key, Cost: 30})
				if given, err := i.Give(t.Context(), p, key, 80, "a"); given != 30 || err != nil {
					t.Error(given, err)
				}
				if given, err := i.Give(t.Context(), p, key, 80, "b"); given != 0 || err != nil {
					t.Error(given, err)
				}
				if used := usedOf(t, i, key); used != 60 {
					t.Errorf("%d used while a reservation holds 60", used)
				}
				noError(t, r.Cancel(t.Context()))
				if used := usedOf(t, i, key); used != 0 {
					t.Errorf("%d used", used)
				}
			})
		}
	})
}

func TestBlockAndUnblock(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		bans := limited(t, "bans", core.Block{Strikes: 3, Within: time.Hour, For: time.Hour})
		key := newKey(t, "k", "<script>")
		i := newInspector(t, inspect.Config{Gate: g, Policies: []*core.Policy{bans}})
		noError(t, i.Block(t.Context(), bans, key, 90*time.Minute))
		why := lookup(t, i, key).Why
		if len(why.Reasons) != 1 || why.RetryAfter > 90*time.Minute || why.RetryAfter < 89*time.Minute ||
			why.Reasons[0].Text() != "bans blocks k/<script> for 1 h 30 min." {
			t.Errorf("%+v: %s", why, why.Reasons[0].Text())
		}
		blocked, err := i.Blocked(t.Context(), bans, 10)
		if err != nil || len(blocked) != 1 || blocked[0].Key != key {
			t.Error(blocked, err)
		}
		noError(t, i.Reset(t.Context(), bans, key))
		if s := lookup(t, i, key); !s.Why.Passes() {
			t.Errorf("%+v", s.Why)
		}
	})
}
