package nethttp_test

import (
	"context"
	"net/http"
	"strings"
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
	for _, tt := range []struct {
		name     string
		policies []core.PolicyConfig
		dialect  nethttp.Dialect
		status   int
		headers  map[string]string
	}{
		{"closed, and an exhausted share", []core.PolicyConfig{hourly, closed}, nethttp.Draft11{}, 503, map[string]string{
			"Retry-After": "3600", "RateLimit-Policy": `"hourly";q=1;w=3600, "closed";q=1;w=3600`, "Cache-Control": "no-store",
		}},
		{"closed, and one that denies all", []core.PolicyConfig{none, closed}, nethttp.Draft11{}, 403, map[string]string{
			"RateLimit-Policy": `"none";q=0, "closed";q=1;w=3600`, "RateLimit": `"none";r=0`, "Cache-Control": "no-store",
		}},
		{"an exhausted share", []core.PolicyConfig{hourly}, nethttp.Legacy{}, 429, map[string]string{
			"Retry-After": "3600", "Cache-Control": "no-store",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := dead(t)
			get(served(t, nethttp.Config{Gate: g, Rules: rules(t, hourly)}))
			h := served(t, nethttp.Config{Gate: g, Rules: rules(t, tt.policies...), Dialect: tt.dialect})
			r := get(h)
			expect(t, r, tt.status, tt.headers)
			if s := body(t, r); tt.status == 503 && !strings.Contains(s, "#temporary-reduced-capacity") {
				t.Errorf("body %s", s)
			}
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
	gate := core.Must(core.NewRedis(client, core.Config{}))
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
