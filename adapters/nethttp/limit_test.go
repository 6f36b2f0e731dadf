package nethttp_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
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

// A customer who changes the plan keeps what is spent.
func TestChangedPlanKeepsTheCount(t *testing.T) {
	limit := core.Algorithm(core.TokenBucket{Burst: 10})
	g := perPlan(t, memory(t, newClock()), func(cfg *nethttp.Config) {
		cfg.Plan = func(*http.Request) (core.Plan, error) { return limited(limit), nil }
	})
	h := g.Handler(http.HandlerFunc(ok))
	for range 10 {
		get(h, apiKey("k"))
	}
	if r := get(h, apiKey("k")); r.StatusCode != 429 {
		t.Errorf("status %d, want 429", r.StatusCode)
	}
	limit = core.TokenBucket{Burst: 12}
	if r := get(h, apiKey("k")); r.Header.Get("RateLimit") != `"p";r=1` {
		t.Errorf("RateLimit %s after the upgrade", r.Header.Get("RateLimit"))
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
			if s := body(t, r); !strings.Contains(s, fmt.Sprintf("All %d concurrent requests", c.limit)) {
				t.Errorf("%s: %s", c.user, s)
			}
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
