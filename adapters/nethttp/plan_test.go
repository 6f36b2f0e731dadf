package nethttp_test

import (
	"context"
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
		block := nethttp.BlockRule{
			Key:    keyfunc.RemoteIP(),
			Policy: policy(t, core.PolicyConfig{Name: "block", Algorithm: core.Block{Strikes: 1, Within: time.Hour, For: time.Hour}}),
			Denied: true,
		}
		all := keyfunc.Must(keyfunc.Static("all"))
		g := guard(t, nethttp.Config{
			Gate: gate, Blocks: []nethttp.BlockRule{block}, Rules: []nethttp.Rule{rule("a"), rule("b")}, MaxDelay: maxDelay,
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
		if err != nil || charges[1].Limit != charges[2].Limit || charges[1].Limit == nil || asked != 4 {
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
	if r := get(g.Handler(http.HandlerFunc(ok))); r.StatusCode != http.StatusOK {
		t.Errorf("status %d", r.StatusCode)
	}
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
	if name != "pro" {
		t.Errorf("the handler reads %q", name)
	}
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
		if err := gate.Reset(t.Context(), c); err != nil {
			t.Error(err)
		}
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
