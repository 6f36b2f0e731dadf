package nethttp_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/keyfunc"
)

// rules returns a rule by the client's address for each policy.
func rules(t *testing.T, policies ...core.PolicyConfig) []nethttp.Rule {
	t.Helper()
	var all []nethttp.Rule
	for _, cfg := range policies {
		all = append(all, nethttp.Rule{Policy: policy(t, cfg), Key: keyfunc.RemoteIP()})
	}
	return all
}

// While Redis is down, Retry-After is the longest wait, and is missing if no wait helps. The share
// of one process is not stated as a limit.
func TestHeadersInAnOutage(t *testing.T) {
	hourly := core.PolicyConfig{Name: "hourly", Algorithm: core.PerHour(1)}
	closed := core.PolicyConfig{Name: "closed", Algorithm: core.PerHour(1), OnFailure: core.FailClosed}
	none := core.PolicyConfig{Name: "none", Algorithm: core.DenyAll{}}
	tests := []struct {
		name     string
		policies []core.PolicyConfig
		dialect  nethttp.Dialect
		status   int
		headers  map[string]string
	}{
		{"closed", []core.PolicyConfig{closed}, nethttp.Draft11{}, 503, map[string]string{
			"Retry-After": "1", "RateLimit-Policy": `"closed";q=1;w=3600`, "Cache-Control": "no-store",
		}},
		{"closed, and an exhausted share", []core.PolicyConfig{hourly, closed}, nethttp.Draft11{}, 503, map[string]string{
			"Retry-After": "3600", "RateLimit-Policy": `"hourly";q=1;w=3600, "closed";q=1;w=3600`, "Cache-Control": "no-store",
		}},
		{"closed, and one that denies all", []core.PolicyConfig{none, closed}, nethttp.Draft11{}, 403, map[string]string{
			"RateLimit-Policy": `"none";q=0, "closed";q=1;w=3600`, "RateLimit": `"none";r=0`, "Cache-Control": "no-store",
		}},
		{"an exhausted share", []core.PolicyConfig{hourly}, nethttp.Legacy{}, 429, map[string]string{
			"Retry-After": "3600", "Cache-Control": "no-store",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := dead(t)
			get(guard(t, nethttp.Config{Gate: g, Rules: rules(t, hourly)}).Handler(http.HandlerFunc(ok)))
			h := guard(t, nethttp.Config{Gate: g, Rules: rules(t, tt.policies...), Dialect: tt.dialect}).Handler(http.HandlerFunc(ok))
			expect(t, get(h), tt.status, tt.headers)
		})
	}
}

// A request with its own deadline never gets a 500, however the deadline and Redis's silence
// overlap. The deadline is no outage, so the failure modes decide only once Redis is known to be
// silent.
func TestDeadlinesInAnOutage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: s.Addr, ContextTimeoutEnabled: true, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	gate, err := core.NewRedis(client, core.Config{})
	if err != nil {
		t.Fatal(err)
	}
	h := guard(t, nethttp.Config{Gate: gate, Rules: rules(t,
		core.PolicyConfig{Name: "p", Algorithm: core.PerHour(1), OnFailure: core.FailOpen})}).Handler(http.HandlerFunc(ok))
	s.Stop()
	defer s.Continue()
	hurriedStatuses := func(n int) map[int]int {
		statuses := make(map[int]int)
		for range n {
			r := get(h, func(r *http.Request) {
				ctx, cancel := context.WithTimeout(r.Context(), 5*time.Millisecond)
				t.Cleanup(cancel)
				*r = *r.WithContext(ctx)
			})
			statuses[r.StatusCode]++
		}
		return statuses
	}
	// On a slow machine it becomes known meanwhile.
	if statuses := hurriedStatuses(20); statuses[503] == 0 || statuses[200]+statuses[503] != 20 {
		t.Errorf("before the outage is known: %v", statuses)
	}
	for known := false; !known; known = hurriedStatuses(1)[200] == 1 {
		if r := get(h); r.StatusCode != http.StatusOK {
			t.Fatalf("a patient request: %d", r.StatusCode)
		}
	}
	if statuses := hurriedStatuses(100); statuses[200]+statuses[503] != 100 || statuses[200] < 90 { // the probe may be one of them
		t.Errorf("%v", statuses)
	}
}

func TestShortWindows(t *testing.T) {
	for _, tt := range []struct {
		limit core.Algorithm
		want  string
	}{
		{core.TokenBucket{Rate: 7, Per: time.Second, Burst: 3}, `"p";q=7;w=1`},
		{core.TokenBucket{Rate: 3, Per: time.Second, Burst: 1}, `"p";q=3;w=1`},
		{core.TokenBucket{Rate: 300_000, Per: time.Second, Burst: 1}, `"p";q=300000;w=1`},
		{core.LeakyBucket{Rate: 300_000, Per: time.Second, Capacity: 5}, `"p";q=300000;w=1`},
		{core.FixedWindow{Limit: 5, Window: 100 * time.Millisecond}, `"p";q=50;w=1`},
		{core.TokenBucket{Rate: 1 << 42, Per: 1, Burst: 1}, `"p";q=999999999999999;w=1`},
	} {
		h := guard(t, nethttp.Config{
			Gate: memory(t, newClock()), Rules: rules(t, core.PolicyConfig{Name: "p", Algorithm: tt.limit}),
		}).Handler(http.HandlerFunc(ok))
		if got := get(h).Header.Get("RateLimit-Policy"); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.limit, got, tt.want)
		}
	}
}

// The headers state the request's own limit.
func TestHeadersStateTheLimitOfTheRequest(t *testing.T) {
	cfg := nethttp.Config{Rules: rules(t, core.PolicyConfig{Name: "p", Algorithm: core.PerMinute(10)})}
	cfg.Gate = memory(t, newClock())
	cfg.Plan = func(*http.Request) (core.Plan, error) { return limited(core.PerHour(500)), nil }
	h := guard(t, cfg).Handler(http.HandlerFunc(ok))
	expect(t, get(h), 200, map[string]string{"RateLimit-Policy": `"p";q=500;w=3600`, "RateLimit": `"p";r=499;t=8`})
	cfg.Plan = func(*http.Request) (core.Plan, error) { return limited(core.Unlimited{}), nil }
	h = guard(t, cfg).Handler(http.HandlerFunc(ok))
	expect(t, get(h), 200, nil)
}

// If no rule applies, no key is derived and the request is admitted without results.
func TestNoRuleApplies(t *testing.T) {
	all := rules(t, core.PolicyConfig{Name: "p", Algorithm: core.DenyAll{}})
	all[0].Skip = func(*http.Request) bool { return true }
	scope := func(*http.Request) (string, error) { return "", keyfunc.ErrNoKey }
	h := guard(t, nethttp.Config{Gate: memory(t, newClock()), Rules: all, Scope: scope}).Handler(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if d := nethttp.AdmissionFromContext(r.Context()).Decision(); !d.Allowed || d.Len() != 0 || d.Source != core.SourceNone {
				t.Errorf("%v from %v", d.Allowed, d.Source)
			}
			ok(w, r)
		}))
	expect(t, get(h), 200, nil)
}

func TestZeroPolicyIsAFault(t *testing.T) {
	_, err := nethttp.NewGuard(nethttp.Config{Gate: memory(t, newClock()), Rules: []nethttp.Rule{{Policy: new(core.Policy), Key: keyfunc.RemoteIP()}}})
	if err == nil {
		t.Error("NewGuard accepted a policy that NewPolicy did not make")
	}
}
