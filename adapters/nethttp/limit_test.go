package nethttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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
			r := get(g.Handler(http.HandlerFunc(ok)), as("acme", user))
			gatetest.Equal(t, r.StatusCode, 500, "%s: status", user)
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
			limit, _, _ := a.Plan().Cap("inner")
			gatetest.Equal(t, limit, 10+asked, "the handler's plan has a cap")
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

// A plan that fails refuses a request whose client waits for 100 Continue as any other.
func TestPlanFailsBeforeTheBody(t *testing.T) {
	for want, err := range map[int]error{400: keyfunc.ErrNoKey, 500: errors.New("down")} {
		for name, change := range map[string]func(*nethttp.Config){
			"BufferBody": func(cfg *nethttp.Config) { cfg.BufferBody = 10 },
			"CostBody": func(cfg *nethttp.Config) {
				bytes := gatetest.Limited(t, "bytes", core.PerHour(100))
				cfg.Rules = append(cfg.Rules, nethttp.Rule{
					Policy: bytes, Key: keyfunc.RemoteIP(), Cost: nethttp.ContentLength(0), CostBody: 10,
				})
			},
		} {
			g := counted(t, change, func(cfg *nethttp.Config) {
				cfg.Plan = func(*http.Request) (core.Plan, error) { return nil, err }
			})
			got := get(g.Handler(http.HandlerFunc(ok)), func(r *http.Request) {
				r.Header.Set("Expect", "100-continue")
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader("abc")), 3
			})
			gatetest.Equal(t, got.StatusCode, want, "%s: status", name)
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
		charges := gatetest.Must(g.Charges(httptest.NewRequest(http.MethodGet, "/", nil)))(t)
		gatetest.Need(t, len(charges), 1, "got")
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
