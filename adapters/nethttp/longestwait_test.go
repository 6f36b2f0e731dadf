package nethttp_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
)

// No refusal states a wait beyond Config.LongestWait, in any header by which clients sleep. Problem
// details state the same wait.
func TestLongestWait(t *testing.T) {
	const day = 24 * time.Hour
	credits := core.TokenBucket{Burst: 1}
	window := func(of time.Duration) core.Algorithm { return core.TokenBucket{Rate: 1, Per: of, Burst: 1} }
	dialects := map[string]nethttp.Dialect{
		"Draft11": nethttp.Draft11{}, "Legacy": nethttp.Legacy{}, "Legacy, Epoch": nethttp.Legacy{Epoch: true},
		"None": nethttp.None{}, "OpenAI": llm.OpenAI{}, "Anthropic": llm.Anthropic{},
	}
	for name, c := range map[string]struct {
		limit   core.Algorithm
		longest time.Duration
		stated  bool
	}{
		"an hour":                  {window(time.Hour), 0, true},
		"2.9 days":                 {window(29 * day / 10), 0, false},
		"29 days":                  {window(29 * day), 0, false},
		"for ever":                 {credits, 0, false},
		"29 days, as configured":   {window(29 * day), 30 * day, true},
		"29 days, without a bound": {window(29 * day), core.Never, true},
		"for ever, without bound":  {credits, core.Never, false},
		"an hour, and less stated": {window(time.Hour), time.Minute, false},
		"less than a second":       {window(time.Second / 2), time.Second / 10, false},
	} {
		for dialect, d := range dialects {
			t.Run(name+", "+dialect, func(t *testing.T) {
				h := guard(t, nethttp.Config{
					Gate: memory(t, newClock()), Dialect: d, LongestWait: c.longest,
					Rules: []nethttp.Rule{{
						Policy: policy(t, core.PolicyConfig{Name: "p", Algorithm: c.limit}), Key: keyfunc.RemoteIP(),
					}},
				}).Handler(http.HandlerFunc(ok))
				admitted, r := get(h), get(h)
				text := body(t, r)
				if r.StatusCode != http.StatusTooManyRequests {
					t.Fatalf("status %d", r.StatusCode)
				}
				wait, legacy := r.Header.Get("Retry-After"), strings.HasPrefix(dialect, "Legacy")
				for _, reset := range []string{admitted.Header.Get("X-Ratelimit-Reset"), r.Header.Get("X-Ratelimit-Reset")} {
					if (reset != "") != (legacy && c.stated) {
						t.Errorf("X-RateLimit-Reset: %q", reset)
					}
				}
				if (wait != "") != c.stated || !c.stated && r.Header.Get("Retry-After-Ms") != "" {
					t.Errorf("%v", r.Header)
				}
				if final := r.Header.Get("X-Should-Retry") == "false"; !final && !c.stated || final && c.stated && !strings.Contains("OpenAI Anthropic", dialect) {
					t.Errorf("X-Should-Retry: %q", r.Header.Get("X-Should-Retry"))
				}
				if strings.HasPrefix(r.Header.Get("Content-Type"), "application/problem+json") &&
					strings.Contains(text, `"retryAfter":`) != c.stated || c.stated && !strings.Contains(text, `"retryAfter":`+wait+`}`) && !strings.Contains("OpenAI Anthropic", dialect) {
					t.Errorf("Retry-After: %s, %s", wait, text)
				}
			})
		}
	}
}
