package nethttp_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
)

// NoKeySkip skips the rule for a request without a key. It must not skip it for an ambiguous key,
// because the handler may read the value that the client is limited by.
func TestAmbiguousKeyIsRefused(t *testing.T) {
	header := func(name string, lines ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header[name] = lines }
	}
	query := func(raw string) func(*http.Request) {
		return func(r *http.Request) { r.URL.RawQuery = raw }
	}
	path := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.SetPathValue("tenant", value) }
	}
	for _, c := range []struct {
		name      string
		key       keyfunc.Func
		ambiguous func(*http.Request)
		missing   func(*http.Request)
	}{
		{"second header line", keyfunc.Must(keyfunc.Header("X-Api-Key")), header("X-Api-Key", "abc", "z"), header("X-Api-Key")},
		{"malformed query", keyfunc.Must(keyfunc.Query("k")), query("k=abc&%zz"), query("other=abc")},
		{"second cookie", keyfunc.Must(keyfunc.Cookie("s")), header("Cookie", "s=abc; s=z"), header("Cookie", "other=abc")},
		{"second Authorization line", keyfunc.BearerToken(),
			header("Authorization", "Bearer abc", "Bearer z"), header("Authorization", "Basic abc")},
		{"malformed bearer token", keyfunc.BearerToken(), header("Authorization", "Bearer abc z"), header("Authorization")},
		{"path value that is too long", keyfunc.Must(keyfunc.PathValue("tenant")), path(strings.Repeat("x", keyfunc.MaxLen+1)), path("")},
	} {
		t.Run(c.name, func(t *testing.T) {
			rule := nethttp.Rule{
				Policy: policy(t, core.PolicyConfig{Name: "p", Algorithm: core.PerMinute(1)}), Key: c.key, NoKey: nethttp.NoKeySkip,
			}
			var last *nethttp.Admission
			served := 0
			h := guard(t, nethttp.Config{
				Gate: memory(t, newClock()), Rules: []nethttp.Rule{rule},
				Observe: observed(func(a *nethttp.Admission) { last = a }),
			}).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
			for range 3 {
				r := get(h, c.ambiguous)
				if r.StatusCode != http.StatusBadRequest {
					t.Fatalf("ambiguous key: status %d, want 400", r.StatusCode)
				}
				if s := body(t, r); !strings.Contains(s, "ambiguous") || strings.Contains(s, "abc") {
					t.Errorf("ambiguous key: body %s", s)
				}
				if err := last.Err(); !errors.Is(err, keyfunc.ErrAmbiguous) || errors.Is(err, keyfunc.ErrNoKey) {
					t.Errorf("ambiguous key: %v", err)
				}
			}
			if served != 0 {
				t.Errorf("%d requests with an ambiguous key were served", served)
			}
			for range 3 {
				if r := get(h, c.missing); r.StatusCode != http.StatusOK {
					t.Errorf("missing key: status %d, want 200", r.StatusCode)
				}
			}
		})
	}
}

// An error that matches both sentinels counts as ambiguous.
func TestAmbiguousPrevailsOverMissing(t *testing.T) {
	both := func(*http.Request) (string, error) { return "", errors.Join(keyfunc.ErrNoKey, keyfunc.ErrAmbiguous) }
	h := guard(t, nethttp.Config{Gate: memory(t, newClock()), Rules: []nethttp.Rule{{
		Policy: policy(t, core.PolicyConfig{Name: "p", Algorithm: core.PerMinute(1)}), Key: both, NoKey: nethttp.NoKeySkip,
	}}}).Handler(http.HandlerFunc(ok))
	if r := get(h); r.StatusCode != http.StatusBadRequest {
		t.Errorf("status %d, want 400", r.StatusCode)
	}
}

func TestAmbiguousScopeAndCapAreRefused(t *testing.T) {
	twice := func(r *http.Request) { r.Header["X-Tenant"] = []string{"a", "b"} }
	gate := memory(t, newClock())
	streams, err := semaphore.New(gate, semaphore.Config{Name: "streams"})
	if err != nil {
		t.Fatal(err)
	}
	byTenant := keyfunc.Must(keyfunc.Header("X-Tenant"))
	for name, cfg := range map[string]nethttp.Config{
		"scope": {Scope: byTenant, Rules: []nethttp.Rule{{
			Policy: policy(t, core.PolicyConfig{Name: "p", Algorithm: core.PerMinute(1)}), Key: keyfunc.RemoteIP(), NoKey: nethttp.NoKeySkip,
		}}},
		"cap": {Slot: &nethttp.Slot{Semaphore: streams, Caps: []nethttp.Cap{{Key: byTenant, Limit: 1}}}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Gate = gate
			h := guard(t, cfg).Handler(http.HandlerFunc(ok))
			if r := get(h, twice); r.StatusCode != http.StatusBadRequest {
				t.Errorf("status %d, want 400", r.StatusCode)
			}
		})
	}
}
