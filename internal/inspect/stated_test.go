package inspect_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/keyfunc"
)

// statedBy returns what is stated below the prefix of a Gate, by name, once a policy of that name is.
func statedBy(t *testing.T, g *core.Gate, name string) map[string]inspect.Stated {
	t.Helper()
	i := newInspector(t, inspect.Config{Gate: g})
	byName := make(map[string]inspect.Stated)
	gatetest.Eventually(t, name+" is stated", func() bool {
		all := gatetest.Must(i.Stated(t.Context()))(t)
		for _, s := range all {
			byName[s.Name] = s
		}
		_, ok := byName[name]
		return ok
	})
	return byName
}

// Each process states its policies, whatever they are, and finds those of others beside them.
func TestGatesStateTheirPolicies(t *testing.T) {
	t.Parallel()
	berlin := gatetest.Must(time.LoadLocation("Europe/Berlin"))(t)
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		one, two := newGate(t, server), newGate(t, server)
		all := map[string]core.PolicyConfig{
			"bucket":  {Algorithm: core.TokenBucket{Rate: 7, Per: time.Minute, Burst: 5}, Hold: time.Minute},
			"frozen":  {Algorithm: core.TokenBucket{Burst: 5}, Raisable: true, Unit: core.UnitTokens},
			"leaky":   {Algorithm: core.LeakyBucket{Rate: 3, Per: time.Second, Capacity: 4}, Shadow: true},
			"fixed":   {Algorithm: core.FixedWindow{Limit: 9, Window: 17 * time.Second, FromFirst: true}},
			"sliding": {Algorithm: core.SlidingWindow{Limit: 10, Window: 13 * time.Second}},
			"log":     {Algorithm: core.SlidingLog{Windows: []core.Window{{Limit: 3, Width: time.Second}}}},
			"bans":    {Algorithm: core.Block{Strikes: 4, Within: time.Hour, For: time.Minute}},
			"month": {Algorithm: core.Calendar{Limit: 1 << 49, Every: core.PeriodMonth, In: berlin,
				Anchor: time.Date(2026, 1, 31, 5, 0, 0, 0, berlin)}},
			"local": {Algorithm: core.Calendar{Limit: 1, Every: core.PeriodDay, In: time.Local}},
			// Zones that a name does not tell: of time.Parse, and one that looks like another.
			"nameless": {Algorithm: core.Calendar{Limit: 1, Every: core.PeriodDay, In: time.FixedZone("", 9*3600)}},
			"winter":   {Algorithm: core.Calendar{Limit: 1, Every: core.PeriodDay, In: time.FixedZone("CET", 3600)}},
			"beta":     {Algorithm: core.DenyAll{}},
			"free":     {Algorithm: core.Unlimited{}},
		}
		key := newKey(t, "k")
		for name, cfg := range all {
			cfg.Name = name
			decide(t, one, core.Charge{Policy: newPolicy(t, cfg), Key: key})
		}
		decide(t, two, core.Charge{Policy: limited(t, "other", core.PerMinute(1)), Key: key, Limit: core.PerMinute(3)})
		gatetest.Peek(t, two, core.Charge{Policy: limited(t, "peeked", core.PerMinute(1)), Key: key})
		statedBy(t, one, "other")
		got := statedBy(t, two, "bucket")
		if len(got) != len(all)+1 || !got["other"].Varies {
			t.Errorf("%d are stated, want %d: %+v", len(got), len(all)+1, got)
		}
		for name, want := range all {
			s := got[name]
			if name == "local" || name == "nameless" || name == "winter" {
				if s.Err == nil || s.Policy != nil {
					t.Errorf("the zone of a program is read: %s: %+v", name, s)
				}
				continue
			}
			if s.Err != nil || s.Policy == nil {
				t.Errorf("%s: %v", name, s.Err)
				continue
			}
			p := s.Policy
			if fmt.Sprint(p.Algorithm()) != fmt.Sprint(want.Algorithm) || p.Unit() != want.Unit ||
				p.Hold() != want.Hold || p.Shadow() != want.Shadow || p.Raisable() != want.Raisable ||
				s.Varies || time.Since(s.At).Abs() > time.Hour {
				t.Errorf("%s: %+v of %v", name, s, p.Algorithm())
			}
		}
		name := server.Prefix + ":{policies}:po1"
		if ttl := server.Client(t).PTTL(t.Context(), name).Val(); ttl <= 0 || ttl > time.Hour {
			t.Errorf("the TTL is %v", ttl)
		}
	})
}

// What a program gives a key itself is not known, whichever process is asked, and hides no denial
// under another policy.
func TestLimitOfAChargeIsNotKnown(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		program, page := newGate(t, server), newGate(t, server)
		api, month := limited(t, "api", core.PerHour(1)), limited(t, "month", core.PerHour(1000))
		key := newKey(t, "k")
		decide(t, program, core.Charge{Policy: month, Key: key, Limit: core.PerHour(1)})
		statedBy(t, page, "month")
		// The page was given policies of its own, of the same names.
		i := newInspector(t, inspect.Config{
			Gate: page, Policies: []*core.Policy{api, limited(t, "month", core.PerHour(1000))},
		})
		s, err := i.Lookup(t.Context(), key)
		if err != nil || len(s.Faults) != 1 || !errors.As(s.Faults[0], new(*inspect.UnknownLimit)) {
			t.Fatal(err, s.Faults)
		}
		if len(s.Limits) != 1 || s.Limits[0].Policy != api {
			t.Errorf("limits %+v", s.Limits)
		}
		decide(t, program, core.Charge{Policy: api, Key: key})
		if s, err = i.Lookup(t.Context(), key); err != nil || len(s.Why.Reasons) != 1 || len(s.Faults) != 1 {
			t.Errorf("%v, reasons %+v, faults %v", err, s.Why.Reasons, s.Faults)
		}
	})
}

// Programs may state one name differently, and one may do so twice. Then the limit of a key is not known,
// and a raise counts only if all of them heed it.
func TestOneNameOfSeveralPolicies(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		one, two, page := newGate(t, server), newGate(t, server), newGate(t, server)
		key, free, pro := newKey(t, "k"), core.FixedWindow{Limit: 1, Window: time.Hour}, core.FixedWindow{Limit: 9, Window: time.Hour}
		raisable := newPolicy(t, core.PolicyConfig{Name: "raised", Algorithm: free, Raisable: true})
		decide(t, one, core.Charge{Policy: limited(t, "in-one", free), Key: key})
		decide(t, one, core.Charge{Policy: limited(t, "in-one", pro), Key: key})
		decide(t, one, core.Charge{Policy: limited(t, "in-two", free), Key: key})
		decide(t, one, core.Charge{Policy: limited(t, "planned", free), Key: key, Limit: pro})
		decide(t, one, core.Charge{Policy: limited(t, "planned", free), Key: key}) // of another guard
		decide(t, one, core.Charge{Policy: limited(t, "planned-here", free), Key: key, Limit: pro})
		decide(t, one, core.Charge{Policy: raisable, Key: key})
		decide(t, one, core.Charge{Policy: limited(t, "alike", free), Key: key})
		statedBy(t, page, "alike")
		for _, name := range []string{"planned-here", "alike"} {
			decide(t, two, core.Charge{Policy: limited(t, name, free), Key: key})
		}
		for _, name := range []string{"in-two", "raised"} {
			decide(t, two, core.Charge{Policy: limited(t, name, pro), Key: key})
		}
		// No customer with a limit of its own has come yet.
		_, err := nethttp.NewGuard(nethttp.Config{
			Gate: two, Plan: func(*http.Request) (core.Plan, error) { return nil, nil },
			Rules: []nethttp.Rule{{Policy: limited(t, "guarded", free), Key: keyfunc.RemoteIP()}},
		})
		if err != nil {
			t.Fatal(err)
		}
		decide(t, two, core.Charge{Policy: limited(t, "last", free), Key: key})
		got := statedBy(t, page, "last")
		for name, varies := range map[string]bool{
			"in-one": true, "in-two": true, "planned": true, "planned-here": true, "guarded": true,
			"alike": false,
		} {
			if got[name].Varies != varies {
				t.Errorf("%s: %+v", name, got[name])
			}
		}
		if got["raised"].Raisable {
			t.Errorf("only one program heeds raises: %+v", got["raised"])
		}
	})
}

// No program heeds a block under a policy that is Shadow.
func TestShadowBlocksAreNotHeeded(t *testing.T) {
	t.Parallel()
	bans := core.PolicyConfig{Name: "bans", Algorithm: core.Block{Strikes: 1, Within: time.Hour, For: time.Hour}}
	for _, shadow := range []bool{false, true} {
		bans.Shadow = shadow
		all := []inspect.Stated{{Name: "bans", Policy: newPolicy(t, bans)}}
		if err := inspect.HeedBlocks(all, "bans"); (err != nil) != shadow {
			t.Errorf("shadow %v: %v", shadow, err)
		}
	}
}
