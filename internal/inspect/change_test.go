package inspect_test

import (
	"context"
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
		gatetest.Is(t, gatetest.Err(i.Give(t.Context(), log, newKey(t, "k"), 1, "id")), core.ErrCharge, "got")
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
				noError(t, err)
				decide(t, g, core.Charge{Policy: p, Key: key, Cost: 30})
				if given, err := i.Give(t.Context(), p, key, 80, "a"); given != 30 || err != nil {
					t.Error(given, err)
				}
				if given, err := i.Give(t.Context(), p, key, 80, "b"); given != 0 || err != nil {
					t.Error(given, err)
				}
				gatetest.Equal(t, usedOf(t, i, key), 60, "used while a reservation holds 60")
				noError(t, r.Cancel(t.Context()))
				gatetest.Equal(t, usedOf(t, i, key), 0, "used")
			})
		}
	})
}

func TestBlockAndUnblock(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		bans := limited(t, "bans", core.Block{Strikes: 3, Within: time.Hour, For: time.Hour})
		key := newKey(t, "k", "<script>")
		i := newInspector(t, inspect.Config{Gate: g, Policies: []*core.Policy{bans}})
		for _, d := range []time.Duration{90 * time.Minute, time.Hour} { // the one that ends last holds
			if rest, err := i.Block(t.Context(), bans, key, d); err != nil || rest > 90*time.Minute || rest < 89*time.Minute {
				t.Errorf("blocked for %v, %v", rest, err)
			}
		}
		why := lookup(t, i, key).Why
		if len(why.Reasons) != 1 || why.RetryAfter > 90*time.Minute || why.RetryAfter < 89*time.Minute ||
			why.Reasons[0].Text(inspect.FormatKey) != "bans blocks k/<script> for 1 h 30 min." {
			t.Errorf("%+v: %s", why, why.Reasons[0].Text(inspect.FormatKey))
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

// A block that Redis does not take is an error, also where a Local process blocks the key itself.
func TestBlockThatRedisDoesNotTake(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := gatetest.Redis(t, s.Client(t), core.Config{Timeout: gatetest.ShortTimeout})
	bans := limited(t, "bans", core.Block{Strikes: 3, Within: time.Hour, For: time.Hour})
	i := newInspector(t, inspect.Config{Gate: g, Policies: []*core.Policy{bans}})
	noError(t, s.Client(t).ConfigSet(t.Context(), "min-replicas-to-write", "1").Err()) // it reads, and writes nothing
	gatetest.Fails(t, gatetest.Err(i.Block(t.Context(), bans, newKey(t, "k"), time.Hour)), "a block that is not in Redis")
}

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

// A process that could not state a policy when it first used it states it soon after Redis answers.
func TestPolicyIsStatedAfterOutage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	opened := make(chan struct{})
	cfg := core.Config{Timeout: gatetest.ShortTimeout, Observe: func(_ context.Context, e core.Event) {
		if gatetest.IsOp(e, core.OpCircuitOpened) {
			close(opened)
		}
	}}
	g := gatetest.Must(core.NewRedis(s.Client(t), cfg))(t)
	defer func() { noError(t, g.Close(t.Context())) }()
	s.Stop()
	charge := core.Charge{Policy: gatetest.Limited(t, "late", core.PerHour(1)), Key: core.Must(core.NewKey("k")), Cost: 1}
	if d := gatetest.Must(g.Decide(t.Context(), charge))(t); d.Cause == nil {
		t.Fatal("a stopped server has answered")
	}
	<-opened
	time.Sleep(2 * time.Second) // what is first used is stated after one
	s.Continue()
	statedBy(t, g, "late")
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
			"zero":     {Algorithm: core.Calendar{Limit: 1, Every: core.PeriodDay, In: time.FixedZone("UTC", 0)}},
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
			if name == "local" || name == "nameless" || name == "winter" || name == "zero" {
				if s.Err == nil {
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
				s.Varies {
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
		gatetest.Must(nethttp.NewGuard(nethttp.Config{
			Gate: two, Plan: func(*http.Request) (core.Plan, error) { return nil, nil },
			Rules: []nethttp.Rule{{Policy: limited(t, "guarded", free), Key: keyfunc.RemoteIP()}},
		}))(t)
		decide(t, two, core.Charge{Policy: limited(t, "last", free), Key: key})
		got := statedBy(t, page, "last")
		for name, varies := range map[string]bool{
			"in-one": true, "in-two": true, "planned": true, "planned-here": true, "guarded": true,
			"alike": false,
		} {
			gatetest.Equal(t, got[name].Varies, varies, "%s: %+v", name, got[name])
		}
		if got["raised"].Raisable {
			t.Errorf("only one program heeds raises: %+v", got["raised"])
		}
	})
}

// What a key has used that Redis does not know, the ledger of the program knows alone.
func TestLedgerOfAProgram(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		program, page := newGate(t, server), newGate(t, server)
		month := newPolicy(t, core.PolicyConfig{
			Name: "month", Algorithm: core.Calendar{Limit: 9000, Every: core.PeriodYear, In: time.UTC}, Raisable: true,
			Ledger: func(context.Context, core.Key, core.Span) (int64, error) { return 5000, nil },
		})
		api, known, key := limited(t, "api", core.PerHour(10)), newKey(t, "known"), newKey(t, "k")
		decide(t, program, core.Charge{Policy: month, Key: known}, core.Charge{Policy: api, Key: known})
		all := statedBy(t, page, "month")
		p := all["month"].Policy
		i := newInspector(t, inspect.Config{Gate: page, Policies: []*core.Policy{p, all["api"].Policy}})
		s := gatetest.Must(i.Lookup(t.Context(), key))(t)
		if len(s.Faults) != 1 || !errors.As(s.Faults[0], new(*inspect.UnknownLimit)) || s.Outage != nil || len(s.Limits) != 1 {
			t.Errorf("faults %v, outage %v, limits %+v", s.Faults, s.Outage, s.Limits)
		}
		gatetest.Is(t, gatetest.Err(i.Give(t.Context(), p, key, -100, "a")), core.ErrLedger, "charged")
		gatetest.Must(i.Raise(t.Context(), p, key, 50, time.Now().Add(time.Hour), "b"))(t)
		d := decide(t, program, core.Charge{Policy: month, Key: key})
		if r := d.At(0); r.Used != 5001 || r.Limit != 9050 {
			t.Errorf("%d of %d used", r.Used, r.Limit)
		}
		gatetest.Equal(t, gatetest.Must(i.Give(t.Context(), p, key, 1001, "c"))(t), 1001, "given")
		// The ledger knows the tenant alone.
		if s := lookup(t, i, newKey(t, "known", "bob")); len(s.Limits) != 3 {
			t.Errorf("limits %+v", s.Limits)
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
