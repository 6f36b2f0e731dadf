package inspect_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/plans"
	"github.com/redis/go-redis/v9"
)

// A subject with six limits, two leases and three waiters.
func TestSubject(t *testing.T) {
	const step = time.Millisecond // far less than the time after which a waiter loses its place
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		acme, bob, ann := newKey(t, "acme"), newKey(t, "acme", "bob"), newKey(t, "acme", "ann")
		policies := []*core.Policy{
			limited(t, "api", core.PerHour(60)),
			newPolicy(t, core.PolicyConfig{Name: "month", Unit: core.UnitTokens, Raisable: true,
				Algorithm: core.Calendar{Limit: 1000, Every: core.PeriodMonth, In: time.UTC}}),
			limited(t, "search", core.AnyMinute(5)),
			limited(t, "log", core.SlidingLog{Windows: []core.Window{{Limit: 3, Width: time.Second}}}),
			limited(t, "bans", core.Block{Strikes: 3, Within: time.Hour, For: time.Hour}),
			newPolicy(t, core.PolicyConfig{Name: "shadow", Algorithm: core.PerHour(1), Shadow: true}),
		}
		decide(t, g, core.Charge{Policy: policies[0], Key: bob, Cost: 12},
			core.Charge{Policy: policies[1], Key: acme, Cost: 990},
			core.Charge{Policy: policies[2], Key: bob, Cost: 5},
			core.Charge{Policy: policies[5], Key: bob})
		decide(t, g, core.Charge{Policy: policies[4], Key: bob, Cost: 2})
		hear(t, g, acme)
		s := newSemaphore(t, g, "streams")
		caps := func(k core.Key) []semaphore.Cap {
			return []semaphore.Cap{{Key: acme, Limit: 2}, {Key: k, Limit: 2}}
		}
		for n, k := range []core.Key{bob, ann} {
			l := gatetest.Must(s.Acquire(t.Context(), semaphore.Request{
				Caps: caps(k), Meta: map[string]string{"request": fmt.Sprint("/chat?a=b c", n)},
			}))(t)
			defer func() { _ = l.Release(t.Context()) }()
			c.Advance(step)
		}
		for _, k := range []core.Key{bob, ann, bob} {
			queue(t, s, semaphore.Request{Caps: caps(k), Meta: map[string]string{"of": k.Parts()[1]}})
			c.Advance(step)
		}

		i := newInspector(t, inspect.Config{
			Gate: g, Policies: policies, Semaphores: []*semaphore.Semaphore{s},
		})
		got := lookup(t, i, bob)
		oldest := got.Slots[0].Holders[0].Since
		after := func(since time.Time) time.Duration { return since.Sub(oldest) }
		var limits []string
		for _, l := range got.Limits {
			limits = append(limits, fmt.Sprintf("%s %s %d/%d %v",
				l.Policy.Name(), inspect.FormatKey(l.Key), l.Result.Used, l.Result.Limit, l.Denies()))
		}
		want := []string{
			"api acme/bob 12/60 false", "month acme 990/1000 false", "month acme/bob 0/1000 false",
			"search acme/bob 5/5 true", "log acme/bob 0/3 false", "bans acme/bob 2/3 false",
			"shadow acme/bob 1/1 false",
		}
		if fmt.Sprint(limits) != fmt.Sprint(want) {
			t.Errorf("limits\n%v, want\n%v", strings.Join(limits, "\n"), strings.Join(want, "\n"))
		}
		slots := got.Slots[0]
		var rows []string
		for _, c := range slots.Caps {
			rows = append(rows, fmt.Sprintf("cap %s %d/%d %d", inspect.FormatKey(c.Key), c.Used, c.Limit, c.Waiting))
		}
		for _, h := range append(slots.Holders, slots.Others...) {
			rows = append(rows, fmt.Sprintf("holds %s %v after %v", inspect.FormatKey(h.Key), h.Meta, after(h.Since)))
		}
		for _, w := range slots.Waiters {
			rows = append(rows, fmt.Sprintf("waits %s %v place %d after %v", inspect.FormatKey(w.Key), w.Meta,
				w.Place, after(w.Since)))
		}
		rows = append(rows, fmt.Sprintf("of others %d, and %d wait", len(slots.Others), slots.OthersWait))
		want = []string{
			"cap acme 2/2 3", "cap acme/bob 1/2 2",
			"holds acme/bob map[request:/chat?a=b c0] after 0s", "holds acme/ann map[request:/chat?a=b c1] after 1ms",
			"waits acme/bob map[of:bob] place 1 after 2ms", "waits acme/bob map[of:bob] place 2 after 4ms",
			"of others 1, and 1 wait",
		}
		if fmt.Sprint(rows) != fmt.Sprint(want) {
			t.Errorf("slots\n%v\nwant\n%v", strings.Join(rows, "\n"), strings.Join(want, "\n"))
		}
		why := got.Why
		if len(why.Reasons) != 2 || why.Reasons[0].Rule() != "search" || why.Reasons[1].Rule() != "streams" {
			t.Errorf("reasons %+v", why.Reasons)
		}
		for at, want := range []string{
			"acme/bob has used 5 of 5 requests of search.",
			"acme holds 2 of 2 slots of streams, and 3 wait.",
		} {
			gatetest.Equal(t, why.Reasons[at].Text(inspect.FormatKey), want, "reason")
		}
	})
}

// Holders whose leases have ended hold nothing, however many of them are still listed.
func TestDeadHoldersHoldNothing(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		s, key := newSemaphore(t, g, "streams"), core.Key{}
		for n := range 40 {
			key = newKey(t, "k", fmt.Sprint(n))
			gatetest.Acquire(t, s, semaphore.Cap{Key: key, Limit: 1})
			c.Advance(time.Millisecond)
		}
		c.Advance(2 * time.Minute)
		i := newInspector(t, inspect.Config{Gate: g, Semaphores: []*semaphore.Semaphore{s}})
		if s := lookup(t, i, key); !s.Why.Passes() || len(s.Slots[0].Holders)+len(s.Slots[0].Others) > 0 {
			t.Errorf("%+v", s.Slots[0])
		}
	})
}

// What denies a key says until when, to the microsecond, and the second is the first after that.
func TestOpensInThatSecond(t *testing.T) {
	c := core.NewManualClock(time.UnixMicro(1_763_700_000_123_457))
	g := gatetest.Memory(t, core.Config{Clock: c.Now})
	policies := []*core.Policy{
		limited(t, "bucket", core.TokenBucket{Rate: 7, Per: time.Minute, Burst: 5}),
		limited(t, "leaky", core.LeakyBucket{Rate: 3, Per: 10 * time.Second, Capacity: 4}),
		limited(t, "fixed", core.FixedWindow{Limit: 9, Window: 17 * time.Second}),
		limited(t, "first", core.FixedWindow{Limit: 8, Window: 11 * time.Second, FromFirst: true}),
		limited(t, "sliding", core.SlidingWindow{Limit: 10, Window: 13 * time.Second}),
		limited(t, "any", core.AnyMinute(20)),
		limited(t, "log", core.SlidingLog{Windows: []core.Window{
			{Limit: 3, Width: time.Second}, {Limit: 12, Width: time.Minute}}}),
		limited(t, "hour", core.Calendar{Limit: 30, Every: core.PeriodHour, In: time.UTC}),
		limited(t, "bans", core.Block{Strikes: 40, Within: time.Hour, For: 90 * time.Second}),
	}
	rng := redistest.Rand(t)
	i := newInspector(t, inspect.Config{Gate: g, Policies: policies})
	key := newKey(t, "k")
	var all []core.Charge
	for _, p := range policies {
		all = append(all, core.Charge{Policy: p, Key: key})
	}
	denied := 0
	for step := range 300 {
		c.Advance(time.Duration(rng.Int64N(int64(4 * time.Second))))
		for range rng.IntN(15) {
			some := rng.IntN(len(all))
			gatetest.Must(g.Decide(t.Context(), all[some]))(t)
		}
		s := lookup(t, i, key)
		d := gatetest.Must(g.Peek(t.Context(), all...))(t)
		if s.Why.Passes() != d.Allowed || s.Why.RetryAfter != d.RetryAfter() {
			t.Fatalf("step %d: %+v, want %v and %v", step, s.Why, d.Allowed, d.RetryAfter())
		}
		if s.Why.Passes() {
			continue
		}
		denied++
		wait := s.Why.RetryAfter
		opens := s.Why.Opens.Sub(s.At)
		if opens < wait || opens >= wait+time.Second || s.Why.Opens.Nanosecond() != 0 {
			t.Fatalf("step %d: opens after %v, want the second after %v", step, opens, wait)
		}
		if step%10 != 0 {
			continue
		}
		c.Advance(wait - time.Microsecond)
		if early := lookup(t, i, key); early.Why.Passes() {
			t.Fatalf("step %d: passes a microsecond early", step)
		}
		c.Advance(time.Microsecond)
		if d := decide(t, g, all...); !d.Allowed {
			t.Fatalf("step %d: denied after %v", step, wait)
		}
	}
	if denied < 20 {
		t.Errorf("only %d of 300 lookups were of a denied key", denied)
	}
}

// What no wait lifts is told as such.
func TestNeverOpens(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		key := newKey(t, "k")
		credits := limited(t, "credits", core.TokenBucket{Burst: 3})
		beta := limited(t, "beta", core.DenyAll{})
		decide(t, g, core.Charge{Policy: credits, Key: key, Cost: 3})
		i := newInspector(t, inspect.Config{
			Gate: g, Policies: []*core.Policy{credits, beta},
		})
		why := lookup(t, i, key).Why
		want := []string{
			"k has used 3 of 3 requests of credits, and no wait brings them back.",
			"beta denies everything to k.",
		}
		for at, r := range why.Reasons {
			if r.Text(inspect.FormatKey) != want[at] || r.RetryAfter != core.Never || !r.Opens.IsZero() {
				t.Errorf("%q, %v, %v", r.Text(inspect.FormatKey), r.RetryAfter, r.Opens)
			}
		}
		if len(why.Reasons) != 2 || why.RetryAfter != core.Never || !why.Opens.IsZero() {
			t.Errorf("%+v", why)
		}
	})
}

// The plan of the outermost part decides, and its override.
func TestSubjectHasPlanAndOverride(t *testing.T) {
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		g := newGate(t, server)
		set := gatetest.Must(plans.NewSet(plans.SetConfig{Default: "free", Plans: map[string]plans.Plan{
			"free": {Limits: map[string]core.Algorithm{"api": core.PerMinute(3)}},
		}}))(t)
		book := gatetest.Must(plans.New(plans.Config{Set: set, Client: server.Client(t), Prefix: server.Prefix}))(t)
		defer book.Close()
		api := limited(t, "api", core.PerMinute(100))
		i := newInspector(t, inspect.Config{Gate: g, Policies: []*core.Policy{api}, Plans: book})
		key := newKey(t, "acme", "bob")
		s := lookup(t, i, key)
		if l := s.Limits[0]; l.Result.Limit != 3 || !l.FromPlan {
			t.Errorf("limit %+v", l)
		}
		if n := s.Tenants; len(n) != 1 || n[0].Name != "acme" || n[0].Plan != "free" || n[0].Override != nil {
			t.Errorf("tenants %+v", n)
		}
		override := plans.Override{Limits: map[string]core.Algorithm{"api": core.PerMinute(7)}}
		noError(t, book.SetOverride(t.Context(), "acme", override))
		s = lookup(t, i, key)
		if l := s.Limits[0]; l.Result.Limit != 7 || s.Tenants[0].Override == nil {
			t.Errorf("limit %+v, tenants %+v", l, s.Tenants)
		}
		if was, err := book.DeleteOverride(t.Context(), "acme"); !was || err != nil {
			t.Error(was, err)
		}
		if l := lookup(t, i, key).Limits[0]; l.Result.Limit != 3 {
			t.Errorf("limit %+v", l)
		}
	})
}

// A Redis that is silent holds up no answer, however long its client waits.
func TestSubjectWithoutOverride(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	patient := server.Client(t, func(o *redis.Options) { o.ReadTimeout = time.Hour })
	set := gatetest.Must(plans.NewSet(plans.SetConfig{Default: "free", Plans: map[string]plans.Plan{"free": {}}}))(t)
	book := gatetest.Must(plans.New(plans.Config{Set: set, Client: patient}))(t)
	defer book.Close()
	g := gatetest.Redis(t, patient, core.Config{Timeout: gatetest.ShortTimeout})
	i, key := newInspector(t, inspect.Config{Gate: g, Plans: book}), newKey(t, "acme")
	lookup(t, i, key)
	server.Stop()
	defer server.Continue()
	found := make(chan *inspect.Subject, 1)
	go func() { found <- gatetest.Must(i.Lookup(t.Context(), key))(t) }()
	select {
	case s := <-found:
		if len(s.Faults) == 0 {
			t.Errorf("%+v", s)
		}
	case <-time.After(time.Minute):
		t.Error("no answer within a minute")
	}
}

func newGate(t *testing.T, server *redistest.Server) *core.Gate {
	t.Helper()
	g := gatetest.Must(core.NewRedis(server.Client(t), core.Config{Prefix: server.Prefix, Timeout: 30 * time.Second}))(t)
	t.Cleanup(func() { _ = g.Close(t.Context()) })
	return g
}

func TestNewTellsEveryFault(t *testing.T) {
	g := gatetest.Must(core.NewMemory(core.Config{}))(t)
	other, err := core.NewMemory(core.Config{})
	noError(t, err)
	api := limited(t, "api", core.PerMinute(1))
	_, err = inspect.New(inspect.Config{
		Policies:   []*core.Policy{nil, api, limited(t, "api", core.PerHour(1))},
		Semaphores: []*semaphore.Semaphore{nil, newSemaphore(t, other, "s")},
	}, "admin")
	for _, want := range []string{
		"admin: Config.Gate is missing", "admin: Config.Policies[0] is missing", "Policies[2] has the name of another, api",
		"Semaphores[0] is nil", "Semaphores[1], s, has another Gate",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	i := newInspector(t, inspect.Config{Gate: g})
	gatetest.Is(t, gatetest.Err(i.Lookup(t.Context(), core.Key{})), core.ErrKey, "got")
	noError(t, g.Close(t.Context()))
	gatetest.Is(t, gatetest.Err(i.Lookup(t.Context(), newKey(t, "k"))), core.ErrClosed, "got")
}

// A limit that is spent denies nothing while another answers for it, and the wait is the shortest of all.
func TestLimitThatAnswers(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		set := gatetest.Must(plans.ParseSet([]byte(`
default: credits
plans:
  credits: {limits: {month: {rate: 0, burst: 2, then: {overage: 1, slow: {rate: 1, per: 1h}}}}}
  year: {limits: {month: {limit: 2, calendar: year, in: UTC, then: {overage: 1, slow: {rate: 1, per: 900d}}}}}
`)))(t)
		book := gatetest.Must(plans.New(plans.Config{
			Set: set, Resolve: func(_ context.Context, tenant string) (string, error) { return tenant, nil },
		}))(t)
		t.Cleanup(book.Close)
		month := newPolicy(t, core.PolicyConfig{Name: "month", Algorithm: core.DenyAll{}, Unit: core.UnitTokens})
		i := newInspector(t, inspect.Config{Gate: g, Policies: []*core.Policy{month}, Plans: book})
		for tenant, slow := range map[string]time.Duration{"credits": time.Hour, "year": 900 * 24 * time.Hour} {
			key := newKey(t, tenant)
			plan := gatetest.Must(book.For(t.Context(), tenant))(t)
			for _, c := range []struct{ spend, then, reason string }{
				{"month", "", ""}, {"month", "month.overage", ""}, {"month.overage", "month.slow", ""},
				{"month.slow", "month.slow", "month.slow"},
			} {
				charge := core.Charge{Policy: i.Policy(c.spend), Key: key, Limit: plan.Algorithm(c.spend)}
				if d := decide(t, g, charge); !d.Allowed {
					t.Fatal(d)
				}
				s := lookup(t, i, key)
				reason, wait := "", time.Duration(0)
				for _, r := range s.Why.Reasons {
					reason += r.Rule()
					wait = min(slow, s.Limits[0].Result.RetryAfter)
				}
				if late := wait - s.Why.RetryAfter; s.Limits[0].Then != c.then || reason != c.reason || late < 0 || late > time.Minute {
					t.Errorf("%s after %s: then %q, reason %q, retry after %v", tenant, c.spend, s.Limits[0].Then, reason, s.Why.RetryAfter)
				}
			}
		}
		gatetest.Equal(t, i.Policy("month.slow").Unit(), core.UnitTokens, "its unit is")
	})
}

// A verdict heeds a limit that has room now, and none once its raise has ended.
func TestVerdictHeedsRaisesThatEnd(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		key := newKey(t, "k")
		budget := gatetest.Must(core.NewPolicy(core.PolicyConfig{
			Name: "budget", Raisable: true, Algorithm: core.TokenBucket{Burst: 1},
		}))(t)
		hour := limited(t, "hour", core.PerHour(1))
		i := newInspector(t, inspect.Config{Gate: g, Policies: []*core.Policy{budget, hour}})
		gatetest.Must(i.Raise(t.Context(), budget, key, 1, c.Now().Add(30*time.Minute), "top-up"))(t)
		decide(t, g, core.Charge{Policy: budget, Key: key}, core.Charge{Policy: hour, Key: key})
		if w := lookup(t, i, key).Why; len(w.Reasons) != 1 || w.RetryAfter != core.Never || !w.Opens.IsZero() {
			t.Errorf("%d reasons, %v, %v", len(w.Reasons), w.RetryAfter, w.Opens)
		}
	})
}
