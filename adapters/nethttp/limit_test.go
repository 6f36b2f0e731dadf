package nethttp_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
)

// plan is a core.Plan. Its caps are limit, share and floor.
type plan struct {
	limits map[string]core.Algorithm
	caps   map[string][3]int64
}

func (p plan) Algorithm(policy string) core.Algorithm { return p.limits[policy] }

func (p plan) Cap(name string) (limit, share, floor int64) {
	c := p.caps[name]
	return c[0], c[1], c[2]
}

// limited returns a plan with a limit under the policy p.
func limited(limit core.Algorithm) plan {
	return plan{limits: map[string]core.Algorithm{"p": limit}}
}

var errBroken = errors.New("broken")

// planOf is a Config.Plan by an API key.
func planOf(r *http.Request) (core.Plan, error) {
	switch r.Header.Get("X-Api-Key") {
	case "big":
		return limited(core.PerHour(500)), nil
	case "fast":
		return limited(core.TokenBucket{Rate: 300, Per: time.Second, Burst: 20}), nil
	case "free":
		return limited(core.Unlimited{}), nil
	case "invalid":
		return limited(core.TokenBucket{}), nil
	case "unknown":
		return nil, fmt.Errorf("no plan: %w", keyfunc.ErrNoKey)
	case "broken":
		return limited(core.PerHour(500)), errBroken
	case "silent":
		return plan{}, nil
	}
	return nil, nil
}

func apiKey(key string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("X-Api-Key", key) }
}

func perPlan(t *testing.T, gate *core.Gate, change ...func(*nethttp.Config)) *nethttp.Guard {
	t.Helper()
	cfg := nethttp.Config{Gate: gate, Plan: planOf, Rules: []nethttp.Rule{{
		Policy: policy(t, core.PolicyConfig{Name: "p", Algorithm: core.PerMinute(10)}),
		Key:    keyfunc.Must(keyfunc.Header("X-Api-Key")),
	}}}
	for _, f := range change {
		f(&cfg)
	}
	return guard(t, cfg)
}

func TestLimitPerPlan(t *testing.T) {
	for _, c := range []struct {
		key     string
		status  int
		headers map[string]string
		err     string
	}{
		{"small", 200, map[string]string{"RateLimit-Policy": `"p";q=10;w=60`, "RateLimit": `"p";r=9;t=6`}, ""},
		{"big", 200, map[string]string{"RateLimit-Policy": `"p";q=500;w=3600`, "RateLimit": `"p";r=499;t=8`}, ""},
		{"fast", 200, map[string]string{"RateLimit-Policy": `"p";q=300;w=1`, "RateLimit": `"p";r=19;t=1`}, ""},
		{"free", 200, nil, ""},
		{"silent", 200, map[string]string{"RateLimit-Policy": `"p";q=10;w=60`, "RateLimit": `"p";r=9;t=6`}, ""},
		{"invalid", 500, map[string]string{"Cache-Control": "no-store"}, "nethttp: limit of p: "},
		{"broken", 500, map[string]string{"Cache-Control": "no-store"}, "nethttp: plan: broken"},
		{"unknown", 400, map[string]string{"Cache-Control": "no-store"}, "nethttp: plan: no plan"},
	} {
		t.Run(c.key, func(t *testing.T) {
			var last *nethttp.Admission
			h := perPlan(t, memory(t, newClock()), func(cfg *nethttp.Config) {
				cfg.Observe = observed(func(a *nethttp.Admission) { last = a })
			}).Handler(http.HandlerFunc(ok))
			expect(t, get(h, apiKey(c.key)), c.status, c.headers)
			if err := fmt.Sprint(last.Err()); c.err != "" && !strings.HasPrefix(err, c.err) {
				t.Errorf("Err is %v", err)
			}
			if has := last.Plan() != nil; has != (c.key != "small" && c.key != "broken" && c.key != "unknown") {
				t.Errorf("Plan is %v", last.Plan())
			}
			// While this process decides alone, its share is not the limit that clients are told.
			alone := get(perPlan(t, deadWith(t, core.Config{Replicas: 2})).Handler(http.HandlerFunc(ok)), apiKey(c.key))
			if got := alone.Header.Get("RateLimit-Policy"); alone.StatusCode != c.status || got != c.headers["RateLimit-Policy"] {
				t.Errorf("in an outage: %d, RateLimit-Policy %s", alone.StatusCode, got)
			}
		})
	}
}

func TestCapPerPlan(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, gate *core.Gate) {
		g, _ := chat(t, gate, func(cfg *nethttp.Config) {
			cfg.Plan = func(r *http.Request) (core.Plan, error) {
				streams := func(n int64) core.Plan { return plan{caps: map[string][3]int64{"streams": {n}}} }
				switch r.Header.Get("X-User") {
				case "big":
					return streams(3), nil
				case "small":
					return streams(1), nil
				case "broken":
					return nil, errBroken
				case "negative":
					return streams(-1), nil
				}
				return plan{}, nil // the default
			}
			cfg.Slot.Caps[0].Limit = 100
			cfg.Rules = nil
		})
		for _, c := range []struct {
			user  string
			limit int
		}{{"big", 3}, {"small", 1}, {"other", 2}} {
			o := newRunning(t, g)
			for range c.limit {
				o.enter(as("acme", c.user))
			}
			r := o.refused(as("acme", c.user))
			want := fmt.Sprintf(`"tenant";q=100;qu="concurrent-requests", "streams";q=%d;qu="concurrent-requests"`, c.limit)
			if got := r.Header.Get("RateLimit-Policy"); r.StatusCode != 429 || got != want {
				t.Errorf("%s: %d, RateLimit-Policy %s, want %s", c.user, r.StatusCode, got, want)
			}
			gatetest.Contains(t, body(t, r), fmt.Sprintf("All %d concurrent requests", c.limit), "%s", c.user)
			for range c.limit {
				o.leave()
			}
		}
		for _, user := range []string{"broken", "negative"} {
			if r := get(g.Handler(http.HandlerFunc(ok)), as("acme", user)); r.StatusCode != 500 {
				t.Errorf("%s: status %d, want 500", user, r.StatusCode)
			}
		}
	})
}

// Every rule and cap of a request reads the one plan that the Guard has asked for, and so may the
// handler.
func TestPlanIsAskedOnceARequest(t *testing.T) {
	for _, maxDelay := range []time.Duration{0, time.Second} {
		gate := memory(t, newClock())
		semaphore := core.Must(semaphore.New(gate, semaphore.Config{Name: "s"}))
		asked := int64(0)
		rule := func(name string) nethttp.Rule {
			return nethttp.Rule{Key: keyfunc.RemoteIP(), Policy: policy(t, core.PolicyConfig{Name: name, Algorithm: core.PerHour(1)})}
		}
		costly, skipped := rule("a"), rule("skipped")
		costly.Cost = func(*http.Request) int64 { return 2 }
		skipped.Skip = func(*http.Request) bool { return true }
		block := nethttp.BlockRule{
			Key:    keyfunc.RemoteIP(),
			Policy: policy(t, core.PolicyConfig{Name: "block", Algorithm: core.Block{Strikes: 1, Within: time.Hour, For: time.Hour}}),
			Denied: true,
		}
		all := keyfunc.Must(keyfunc.Static("all"))
		g := guard(t, nethttp.Config{
			Gate: gate, Blocks: []nethttp.BlockRule{block}, Rules: []nethttp.Rule{costly, rule("b"), skipped}, MaxDelay: maxDelay,
			Slot: &nethttp.Slot{Semaphore: semaphore, Caps: []nethttp.Cap{
				{Name: "outer", Key: keyfunc.RemoteIP(), Limit: 1}, {Name: "inner", Key: all, Limit: 1},
			}},
			Plan: func(*http.Request) (core.Plan, error) {
				asked++
				limit := core.TokenBucket{Rate: 1, Per: time.Hour, Burst: 10 + asked}
				return plan{
					limits: map[string]core.Algorithm{"a": limit, "b": limit, "block": core.DenyAll{}},
					caps:   map[string][3]int64{"outer": {10 + asked}, "inner": {10 + asked}},
				}, nil
			},
		})
		h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a := nethttp.AdmissionFromContext(r.Context())
			for i, result := range a.Decision().Results() {
				if i > 0 && result.Limit != 10+asked { // the first is of the block
					t.Errorf("result %d has limit %d, want %d", i, result.Limit, 10+asked)
				}
			}
			if limit, _, _ := a.Plan().Cap("inner"); limit != 10+asked {
				t.Errorf("the handler's plan has a cap of %d, want %d", limit, 10+asked)
			}
		}))
		for i := range int64(3) {
			if r := get(h); r.StatusCode != http.StatusOK || asked != i+1 {
				t.Errorf("status %d, the plan was asked for %d times", r.StatusCode, asked)
			}
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		charges, err := g.Charges(r)
		if err != nil || len(charges) != 3 || charges[1].Limit != charges[2].Limit || charges[1].Limit == nil || charges[1].Cost != 2 || asked != 4 {
			t.Errorf("Charges: %v, %v", charges, err)
		}
		if caps, err := g.Caps(r); err != nil || caps[0].Limit != 15 || caps[1].Limit != 15 {
			t.Errorf("Caps: %+v, %v", caps, err)
		}
		if got := get(g.Usage()); got.StatusCode != http.StatusOK || asked != 6 {
			t.Errorf("Usage: status %d, the plan was asked for %d times", got.StatusCode, asked)
		}
	}
}

// A request that no rule and no cap applies to needs no plan.
func TestPlanIsNotAskedInVain(t *testing.T) {
	g := guard(t, nethttp.Config{
		Gate: memory(t, newClock()), Rules: []nethttp.Rule{
			{Policy: policy(t, core.PolicyConfig{Name: "a", Algorithm: core.PerHour(1)}), Key: keyfunc.Must(keyfunc.Header("X-Api-Key")), NoKey: nethttp.NoKeySkip},
			{Policy: policy(t, core.PolicyConfig{Name: "b", Algorithm: core.PerHour(1)}), Key: keyfunc.RemoteIP(), Skip: func(*http.Request) bool { return true }},
		},
		Plan: func(*http.Request) (core.Plan, error) { return nil, errBroken },
	})
	answers(t, get(g.Handler(http.HandlerFunc(ok))), http.StatusOK)
}

// What a Plan parses and reads of a request, the handler finds parsed and read.
func TestPlanParsesTheForm(t *testing.T) {
	g := guard(t, nethttp.Config{
		Gate: memory(t, newClock()), Rules: rules(t, core.PolicyConfig{Name: "a", Algorithm: core.PerHour(1)}),
		Plan: func(r *http.Request) (core.Plan, error) {
			r.PostFormValue("plan")
			return nil, nil
		},
	})
	var name string
	h := g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { name = r.PostFormValue("plan") }))
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("plan=pro"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	h.ServeHTTP(httptest.NewRecorder(), r)
	gatetest.Equal(t, name, "pro", "the handler reads")
}

// A key whose limit is of a plan is seeded by its ledger, raised, corrected and reset, by the charges
// that the Guard returns.
func TestQuotaOfAPlan(t *testing.T) {
	eachGate(t, func(t *testing.T, gate *core.Gate) {
		month := core.Calendar{Limit: 10, Every: core.PeriodMonth, In: time.UTC}
		all := rules(t, core.PolicyConfig{
			Name: "p", Algorithm: core.DenyAll{}, OnFailure: core.FailClosed, Raisable: true,
			Ledger: func(context.Context, core.Key, core.Span) (int64, error) { return 4, nil },
		})
		all[0].Settle = func(_ *http.Request, _ int, cost int64) int64 { return cost + 1 }
		g := guard(t, nethttp.Config{
			Gate: gate, Rules: all, Plan: func(*http.Request) (core.Plan, error) { return limited(month), nil },
		})
		left := func(want string) {
			t.Helper()
			if r := get(g.Handler(http.HandlerFunc(ok))); !strings.HasPrefix(r.Header.Get("RateLimit"), want) {
				t.Errorf("status %d, RateLimit %s, want %s", r.StatusCode, r.Header.Get("RateLimit"), want)
			}
		}
		left(`"p";r=5;`) // 4 of the ledger and 1 of the request, which is settled as 2
		left(`"p";r=3;`)
		charges, err := g.Charges(httptest.NewRequest(http.MethodGet, "/", nil))
		if err != nil || len(charges) != 1 {
			t.Fatal(charges, err)
		}
		c := charges[0]
		if added, err := gate.RaiseUsed(t.Context(), c, 9, time.Time{}); added != 1 || err != nil {
			t.Errorf("RaiseUsed added %d, %v", added, err)
		}
		applied, err := gate.Adjust(t.Context(), core.Adjustment{
			ID: "top-up", Policy: c.Policy, Key: c.Key, Limit: c.Limit, Raise: 5, Until: time.Now().Add(time.Hour),
		})
		if !applied || err != nil {
			t.Errorf("Adjust: %t, %v", applied, err)
		}
		left(`"p";r=5;`) // 9 and 1 of 15
		gatetest.Worked(t, gate.Reset(t.Context(), c))
		left(`"p";r=14`) // 1 of 15: the ledger is not asked again, and no later month has more
	})
}

// A plan that names nothing costs a request no allocation.
func TestPlanAllocatesNothing(t *testing.T) {
	allocs := func(planOf func(*http.Request) (core.Plan, error)) float64 {
		gate := memory(t, newClock())
		semaphore := core.Must(semaphore.New(gate, semaphore.Config{Name: "s"}))
		h := guard(t, nethttp.Config{
			Gate: gate, Rules: rules(t, core.PolicyConfig{Name: "p", Algorithm: core.PerSecond(1_000_000)}), Plan: planOf,
			Slot: &nethttp.Slot{Semaphore: semaphore, Caps: []nethttp.Cap{{Name: "c", Key: keyfunc.RemoteIP(), Limit: 10}}},
		}).Handler(http.HandlerFunc(ok))
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		return gatetest.Allocs(func() { h.ServeHTTP(httptest.NewRecorder(), r) })
	}
	without, silent := allocs(nil), core.Plan(plan{})
	for name, p := range map[string]core.Plan{"nil": nil, "silent": silent} {
		if n := allocs(func(*http.Request) (core.Plan, error) { return p, nil }); n > without {
			t.Errorf("%s: %v allocations, and %v without a plan", name, n, without)
		}
	}
}

// forged returns a request that an operator makes up for a client.
func forged(change ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, f := range change {
		f(r)
	}
	return r
}

func TestLevelsHaveShares(t *testing.T) {
	g, _ := chat(t, memory(t, newClock()), func(cfg *nethttp.Config) {
		users := &cfg.Slot.Caps[1]
		users.Limit, users.Share, users.Floor = 9, 2, 5 // above the limit of 2 that some requests have
		cfg.Plan = func(r *http.Request) (core.Plan, error) {
			user := r.Header.Get("X-User")
			numbers := [3]int64{int64(len(user))}
			switch user {
			case "paying":
				numbers = [3]int64{6, 30, 3}
			case "negative":
				numbers = [3]int64{8, 1, -1}
			}
			return plan{caps: map[string][3]int64{users.Name: numbers, cfg.Slot.Caps[0].Name: {0, 7, 7}}}, nil
		}
	})
	for user, want := range map[string][2]int64{"paying": {30, 3}, "me": {2, 2}, "somebody": {2, 5}} {
		caps, err := g.Caps(forged(as("acme", user)))
		if err != nil || [2]int64{caps[1].Share, caps[1].Floor} != want || caps[0].Share+caps[0].Floor != 0 {
			t.Errorf("%s: %+v, %v", user, caps, err)
		}
	}
	answers(t, get(g.Handler(http.HandlerFunc(ok)), as("acme", "negative")), 500)
}

func TestChargesReportMissingKeys(t *testing.T) {
	g, _ := chat(t, memory(t, newClock()))
	r := forged()
	if charges, err := g.Charges(r); charges != nil || !errors.Is(err, keyfunc.ErrNoKey) {
		t.Errorf("%+v, %v", charges, err)
	}
	if caps, err := g.Caps(r); caps != nil || !errors.Is(err, keyfunc.ErrNoKey) {
		t.Errorf("%+v, %v", caps, err)
	}
}

type tenantName struct{}

// authenticated puts the tenant of a token into the context. Each token is its tenant's name.
func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantName{}, tenant)))
	})
}

func token(tenant string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+tenant) }
}

var byTenant = keyfunc.Must(keyfunc.ContextValue(tenantName{}))

// usageOf returns the body of a response for a usage, and checks its headers.
func usageOf(t *testing.T, r *http.Response) string {
	t.Helper()
	expect(t, r, 200, map[string]string{"Cache-Control": "no-store"})
	gatetest.Equal(t, r.Header.Get("Content-Type"), "application/json", "Content-Type")
	return body(t, r)
}

// Every kind of policy is told in the terms of RateLimit. A shadow and a block are not told.
func TestUsageTellsPolicies(t *testing.T) {
	day := core.Calendar{Limit: 1000, Every: core.PeriodDay, In: time.UTC}
	for name, tt := range map[string]struct {
		cfg  core.PolicyConfig
		cost int64
		want string
	}{
		"untouched":    {core.PolicyConfig{Algorithm: core.PerMinute(60)}, 0, `{"name":"p","q":60,"qu":"requests","w":60,"used":0,"r":60}`},
		"token bucket": {core.PolicyConfig{Algorithm: core.PerMinute(60)}, 2, `{"name":"p","q":60,"qu":"requests","w":60,"used":2,"r":58,"t":1,"reset":2}`},
		"calendar": {core.PolicyConfig{Algorithm: day, Unit: core.UnitMicroDollars}, 1000,
			`{"name":"p","q":1000,"qu":"micro-dollars","w":86400,"used":1000,"r":0,"t":57600,"reset":57600}`},
		"a grant":      {core.PolicyConfig{Algorithm: core.TokenBucket{Burst: 9}, Unit: core.UnitTokens}, 4, `{"name":"p","q":9,"qu":"tokens","used":4,"r":5}`},
		"short window": {core.PolicyConfig{Algorithm: core.FixedWindow{Limit: 5, Window: 250 * time.Millisecond}}, 1, `{"name":"p","q":5,"qu":"requests","w":0.25,"used":1,"r":4,"t":1,"reset":1}`},
		"odd window":   {core.PolicyConfig{Algorithm: core.FixedWindow{Limit: 5, Window: 1500 * time.Millisecond}}, 0, `{"name":"p","q":5,"qu":"requests","w":2,"used":0,"r":5}`},
		"unlimited":    {core.PolicyConfig{Algorithm: core.Unlimited{}}, 1, `{"name":"p","qu":"requests","unlimited":true}`},
		"deny all":     {core.PolicyConfig{Algorithm: core.DenyAll{}}, 0, `{"name":"p","q":0,"qu":"requests","used":0,"r":0}`},
		"shadow":       {core.PolicyConfig{Algorithm: core.PerMinute(60), Shadow: true}, 2, ``},
	} {
		t.Run(name, func(t *testing.T) {
			gate := memory(t, newClock())
			tt.cfg.Name = "p"
			p := policy(t, tt.cfg)
			g := guard(t, nethttp.Config{
				Gate: gate,
				Rules: []nethttp.Rule{{
					Policy: p, Key: byTenant,
					Skip: func(*http.Request) bool { return true },
					Cost: func(*http.Request) int64 { t.Error("Cost is called"); return 1 },
				}},
				Blocks: []nethttp.BlockRule{{Policy: bans(t, core.Block{Strikes: 1, Within: time.Hour, For: time.Hour}), Key: keyfunc.RemoteIP(), Denied: true}},
			})
			key := core.Must(core.NewKey("acme"))
			gatetest.Must(gate.Decide(t.Context(), core.Charge{Policy: p, Key: key, Cost: cmp.Or(tt.cost, core.NoCost)}))(t)
			h := authenticated(g.Usage())
			for range 2 { // reading spends nothing
				if got, want := usageOf(t, get(h, token("acme"))), `{"policies":[`+tt.want+`],"caps":[]}`+"\n"; got != want {
					t.Errorf("%swant %s", got, want)
				}
			}
		})
	}
}

// A tenant reads its own usage, whatever it puts into its request.
func TestUsageIsOfTheAuthenticatedTenant(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, gate *core.Gate) {
		g := guard(t, nethttp.Config{
			Gate: gate,
			Rules: []nethttp.Rule{{
				Policy: policy(t, core.PolicyConfig{Name: "p", Algorithm: core.TokenBucket{Burst: 10}}), Key: byTenant,
			}},
			Plan: func(r *http.Request) (core.Plan, error) {
				if name, _ := r.Context().Value(tenantName{}).(string); name == "gold" {
					return limited(core.TokenBucket{Burst: 100}), nil
				}
				return nil, nil
			},
		})
		h, own := authenticated(g.Handler(http.HandlerFunc(ok))), authenticated(g.Usage())
		for range 3 {
			get(h, token("gold"))
		}
		get(h, token("acme"))
		spoof := func(r *http.Request) {
			r.URL.RawQuery = "tenant=gold&key=gold"
			for _, name := range []string{"X-Tenant", "X-User", "X-Forwarded-For", "Tenant", "Host"} {
				r.Header.Set(name, "gold")
			}
		}
		for tenant, want := range map[string]string{
			"gold":    `"q":100,"qu":"requests","used":3,"r":97`,
			"acme":    `"q":10,"qu":"requests","used":1,"r":9`,
			"initech": `"q":10,"qu":"requests","used":0,"r":10`,
		} {
			if got := usageOf(t, get(own, token(tenant), spoof)); got != `{"policies":[{"name":"p",`+want+`}],"caps":[]}`+"\n" {
				t.Errorf("%s reads %s", tenant, got)
			}
		}
	})
}

// A stream is what runs on the client's own keys.
func TestUsageCountsStreams(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, gate *core.Gate) {
		g, _ := chat(t, gate, func(cfg *nethttp.Config) {
			cfg.Slot.Caps = []nethttp.Cap{
				{Name: "all", Key: keyfunc.Must(keyfunc.Static("all")), Limit: 10, Global: true},
				{Name: "running", Key: keyfunc.Must(keyfunc.Static("running")), Limit: 3},
				{Key: keyfunc.Must(keyfunc.Static("nameless")), Limit: 3},
				{Name: "streams", Key: keyfunc.Must(keyfunc.Header("X-User")), Limit: 1},
			}
			cfg.Plan = func(*http.Request) (core.Plan, error) {
				return plan{caps: map[string][3]int64{"streams": {2}}}, nil
			}
			cfg.Slot.Skip = func(r *http.Request) bool { return r.Header.Get("Skip") != "" }
		})
		o := newRunning(t, g)
		o.enter(as("acme", "ann"))
		o.enter(as("acme", "ann"))
		o.enter(as("acme", "bob"))
		o.enter(as("globex", "ann"))
		streams := func(tenant, user string) string {
			_, streams, _ := strings.Cut(usageOf(t, get(g.Usage(), as(tenant, user), func(r *http.Request) { r.Header.Set("Skip", "1") })), `,"caps":`)
			return streams
		}
		const format = `[{"name":"running","q":3,"qu":"concurrent-requests","used":A},` + `{"name":"streams","q":2,"qu":"concurrent-requests","used":B}]}` + "\n"
		for who, want := range map[[2]string][2]string{
			{"acme", "ann"}:   {`3,"r":0`, `2,"r":0`},
			{"acme", "bob"}:   {`3,"r":0`, `1,"r":1`},
			{"acme", "carol"}: {`3,"r":0`, `0,"r":2`},
			{"globex", "ann"}: {`1,"r":2`, `1,"r":1`},
			{"initech", "a"}:  {`0,"r":3`, `0,"r":2`},
		} {
			if got, want := streams(who[0], who[1]), strings.NewReplacer("A", want[0], "B", want[1]).Replace(format); got != want {
				t.Errorf("%s: %swant %s", who, got, want)
			}
		}
		for range 4 {
			o.leave()
		}
		if got := streams("acme", "ann"); !strings.Contains(got, `"used":0,"r":3`) || !strings.Contains(got, `"used":0,"r":2`) {
			t.Errorf("when all have ended: %s", got)
		}
	})
}

// A Guard of caps alone tells its streams.
func TestUsageOfCapsAlone(t *testing.T) {
	gate := memory(t, newClock())
	g := guard(t, nethttp.Config{Slot: &nethttp.Slot{
		Semaphore: newSemaphore(t, gate, semaphore.Config{}),
		Caps:      []nethttp.Cap{{Name: "streams", Key: keyfunc.RemoteIP(), Limit: 2}},
	}})
	const want = `{"policies":[],"caps":[{"name":"streams","q":2,"qu":"concurrent-requests","used":0,"r":2}]}` + "\n"
	gatetest.Equal(t, usageOf(t, get(g.Usage())), want, "got")
}

func TestUsageMethods(t *testing.T) {
	g, _ := chat(t, memory(t, newClock()))
	ask := func(method string) *http.Response {
		r, w := httptest.NewRequest(method, "/usage", nil), httptest.NewRecorder()
		as("acme", "ann")(r)
		g.Usage().ServeHTTP(w, r)
		return w.Result()
	}
	whole, head := ask(http.MethodGet), ask(http.MethodHead)
	if got := body(t, head); head.StatusCode != 200 || got != "" {
		t.Errorf("HEAD: status %d, %q", head.StatusCode, got)
	}
	for name := range whole.Header {
		if got, want := head.Header.Get(name), whole.Header.Get(name); got != want {
			t.Errorf("HEAD: %s is %q, want %q", name, got, want)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		if r := ask(method); r.StatusCode != 405 || r.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: status %d, Allow %q", method, r.StatusCode, r.Header.Get("Allow"))
		}
	}
}

// A refusal is that of the Guard, and says neither why nor whose key it is.
func TestUsageRefusals(t *testing.T) {
	secret := errors.New("secret")
	hourly := core.PolicyConfig{Name: "p", Algorithm: core.PerHour(9)}
	for name, tt := range map[string]struct {
		gate   *core.Gate // nil: in memory
		change func(*nethttp.Config)
		tenant string
		status int
		header map[string]string
	}{
		"no key":                     {nil, nil, "", 400, nil},
		"no key, and the rule skips": {nil, func(c *nethttp.Config) { c.Rules[0].NoKey = nethttp.NoKeySkip }, "", 200, nil},
		"no scope":                   {nil, func(c *nethttp.Config) { c.Scope = keyfunc.Must(keyfunc.Header("X-Org")) }, "acme", 400, nil},
		"no key of a cap": {nil, func(c *nethttp.Config) {
			c.Slot = &nethttp.Slot{Semaphore: newSemaphore(t, c.Gate, semaphore.Config{}), Caps: []nethttp.Cap{{Key: keyfunc.Must(keyfunc.Header("X-User")), Limit: 1}}}
		}, "acme", 400, nil},
		"the key fails": {nil, func(c *nethttp.Config) {
			c.Rules[0].Key = func(*http.Request) (string, error) { return "", secret }
		}, "acme", 500, nil},
		"the plan fails": {nil, func(c *nethttp.Config) {
			c.Plan = func(*http.Request) (core.Plan, error) { return nil, secret }
		}, "acme", 500, nil},
		"the limit is not valid": {nil, func(c *nethttp.Config) {
			c.Plan = func(*http.Request) (core.Plan, error) { return limited(core.PerMinute(-1)), nil }
		}, "acme", 500, nil},
		"Redis is down": {dead(t), nil, "acme", 503, map[string]string{"Retry-After": "1"}},
		"Redis is down, and the policy is Open": {dead(t), func(c *nethttp.Config) {
			c.Rules[0].Policy = policy(t, core.PolicyConfig{Name: "p", Algorithm: core.PerHour(9), OnFailure: core.FailOpen})
		}, "acme", 503, map[string]string{"Retry-After": "1"}},
		"Redis is down, and only caps need it": {dead(t), func(c *nethttp.Config) {
			c.Rules = nil
			c.Slot = &nethttp.Slot{Semaphore: newSemaphore(t, c.Gate, semaphore.Config{}), Caps: []nethttp.Cap{{Name: "c", Key: byTenant, Limit: 1}}}
		}, "acme", 503, map[string]string{"Retry-After": "1"}},
		"Redis is down, in another Dialect": {dead(t), func(c *nethttp.Config) { c.Dialect = own{} }, "acme", 529, map[string]string{"Retry-After": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := nethttp.Config{Gate: tt.gate, Rules: []nethttp.Rule{{Policy: policy(t, hourly), Key: byTenant}}}
			if cfg.Gate == nil {
				cfg.Gate = memory(t, newClock())
			}
			if tt.change != nil {
				tt.change(&cfg)
			}
			r := get(authenticated(guard(t, cfg).Usage()), token(tt.tenant))
			want := map[string]string{"Cache-Control": "no-store"}
			for name, value := range tt.header {
				want[name] = value
			}
			expect(t, r, tt.status, want)
			if text := body(t, r); strings.Contains(text, "secret") || strings.Contains(text, "acme") || strings.Contains(text, "127.0.0.1") {
				t.Errorf("the body tells %s", text)
			}
		})
	}
	t.Run("zero Guard", func(t *testing.T) {
		answers(t, get(new(nethttp.Guard).Usage()), 500)
	})
	t.Run("Config.Refuse", func(t *testing.T) {
		g := guard(t, nethttp.Config{
			Gate: memory(t, newClock()), Rules: []nethttp.Rule{{Policy: policy(t, hourly), Key: byTenant}},
			Refuse: func(w http.ResponseWriter, _ *http.Request, a *nethttp.Admission) {
				http.Error(w, "own "+a.StatusText(), a.Status())
			},
		})
		if r := get(authenticated(g.Usage())); r.StatusCode != 400 || body(t, r) != "own Bad Request\n" {
			t.Errorf("status %d", r.StatusCode)
		}
	})
}
