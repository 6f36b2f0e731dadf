package nethttp_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
)

// RateLimit-Policy states the unit of a policy that does not count requests, also of a limit that
// the request brings.
func TestQuotaUnits(t *testing.T) {
	for _, tt := range []struct {
		name  string
		unit  core.Unit
		limit core.Algorithm
		own   core.Algorithm // of the plan
		want  string
	}{
		{"requests", core.UnitRequests, core.PerMinute(5), nil, `"p";q=5;w=60`},
		{"tokens", core.UnitTokens, core.PerMinute(5), nil, `"p";q=5;qu="tokens";w=60`},
		{"input tokens", core.UnitInputTokens, core.PerMinute(5), nil, `"p";q=5;qu="input-tokens";w=60`},
		{"output tokens", core.UnitOutputTokens, core.PerMinute(5), nil, `"p";q=5;qu="output-tokens";w=60`},
		{"bodies", core.UnitContentBytes, core.PerHour(10 << 30), nil, `"p";q=10737418240;qu="content-bytes";w=3600`},
		{"money", core.UnitMicroDollars, core.PerMinute(5), nil, `"p";q=5;qu="micro-dollars";w=60`},
		{"never refills", core.UnitTokens, core.TokenBucket{Burst: 5}, nil, `"p";q=5;qu="tokens"`},
		{"short window", core.UnitTokens, core.FixedWindow{Limit: 5, Window: 100 * time.Millisecond}, nil, `"p";q=50;qu="tokens";w=1`},
		{"7 a second", core.UnitRequests, core.TokenBucket{Rate: 7, Per: time.Second, Burst: 3}, nil, `"p";q=7;w=1`},
		{"a burst of 1", core.UnitRequests, core.TokenBucket{Rate: 3, Per: time.Second, Burst: 1}, nil, `"p";q=3;w=1`},
		{"many a second", core.UnitRequests, core.TokenBucket{Rate: 300_000, Per: time.Second, Burst: 1}, nil, `"p";q=300000;w=1`},
		{"leaky", core.UnitRequests, core.LeakyBucket{Rate: 300_000, Per: time.Second, Capacity: 5}, nil, `"p";q=300000;w=1`},
		{"above the largest integer", core.UnitRequests, core.TokenBucket{Rate: 1 << 42, Per: 1, Burst: 1}, nil, `"p";q=999999999999999;w=1`},
		{"limit of the request", core.UnitTokens, core.PerMinute(5), core.PerMinute(7), `"p";q=7;qu="tokens";w=60`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := rules(t, core.PolicyConfig{Name: "p", Algorithm: tt.limit, Unit: tt.unit})
			cfg := nethttp.Config{Gate: memory(t, newClock()), Rules: all}
			if tt.own != nil {
				cfg.Plan = func(*http.Request) (core.Plan, error) { return limited(tt.own), nil }
			}
			r := get(served(t, cfg))
			got := r.Header.Values("RateLimit-Policy")
			if len(got) != 1 || got[0] != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if _, err := httpsfv.UnmarshalList(got); err != nil {
				t.Error(err)
			}
			if all[0].Policy.Unit() != tt.unit {
				t.Errorf("Unit is %v", all[0].Policy.Unit())
			}
		})
	}
}
