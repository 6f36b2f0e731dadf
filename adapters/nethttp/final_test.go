package nethttp_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// A denial that no wait lifts has a status that clients do not retry, and says which policy it is. A
// quota that is spent for ever is still 429: what comes back depends on others.
func TestDenialsThatNoWaitLifts(t *testing.T) {
	const base = "https://iana.org/assignments/http-problem-types#"
	log := core.SlidingLog{Windows: []core.Window{{Limit: 4, Width: time.Minute}, {Limit: 20, Width: time.Hour}}}
	hour := core.PerHour(10)
	type limits map[string]core.Algorithm
	for _, c := range []struct {
		name   string
		own    limits // of the policies a and b
		plan   limits
		block  bool
		cost   int64
		status int // of Config
		want   int
		body   string // without the last members
	}{
		{"a plan that does not include it", limits{"a": hour}, limits{"a": core.DenyAll{}}, false, 1, 0, 403,
			`{"type":"about:blank","title":"Forbidden","status":403,"detail":"The plan does not include policy \"a\".","violated-policies":["a"]}`},
		{"a plan that would be paid for", limits{"a": hour}, limits{"a": core.DenyAll{}}, false, 1, 402, 402,
			`{"type":"about:blank","title":"Payment Required","status":402,"detail":"The plan does not include policy \"a\".","violated-policies":["a"]}`},
		{"several that the plan does not include", limits{"a": hour, "b": hour}, limits{"a": core.DenyAll{}, "b": core.DenyAll{}}, false, 1, 0, 403,
			`{"type":"about:blank","title":"Forbidden","status":403,"detail":"The plan does not include policies \"a\", \"b\".","violated-policies":["a","b"]}`},
		{"a policy that denies all", limits{"a": core.DenyAll{}}, nil, false, 1, 0, 403,
			`{"type":"about:blank","title":"Forbidden","status":403,"detail":"No request is allowed by policy \"a\".","violated-policies":["a"]}`},
		{"above the limit", limits{"a": hour}, nil, false, 11, 0, 413,
			`{"type":"about:blank","title":"Request Entity Too Large","status":413,"detail":"The cost of the request exceeds the limit of policy \"a\".","violated-policies":["a"]}`},
		{"above a shorter window", limits{"a": log}, nil, false, 5, 0, 413,
			`{"type":"about:blank","title":"Request Entity Too Large","status":413,"detail":"The cost of the request exceeds the limit of policy \"a\".","violated-policies":["a"]}`},
		{"above one, and another does not include it", limits{"a": hour, "b": hour}, limits{"b": core.DenyAll{}}, false, 11, 0, 403,
			`{"type":"about:blank","title":"Forbidden","status":403,"detail":"The plan does not include policy \"b\". The cost of the request exceeds the limit of policy \"a\".","violated-policies":["a","b"]}`},
		{"above one, and another is exhausted", limits{"a": hour, "b": core.PerHour(6)}, nil, false, 6, 0, 429, base + "quota-exceeded"},
		{"spent for ever", limits{"a": core.TokenBucket{Burst: 10}}, nil, false, 6, 0, 429, base + "quota-exceeded"},
		{"blocked, and above the limit", limits{"a": hour}, nil, true, 11, 0, 413,
			`{"type":"about:blank","title":"Request Entity Too Large","status":413,"detail":"The cost of the request exceeds the limit of policy \"a\".",`},
		{"blocked, and not included", limits{"a": core.DenyAll{}}, nil, true, 1, 0, 403,
			`{"type":"about:blank","title":"Forbidden","status":403,"detail":"No request is allowed by policy \"a\".",`},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, gate *core.Gate) {
				cfg := nethttp.Config{Gate: gate, DenyAllStatus: c.status}
				for _, name := range []string{"a", "b"} {
					if c.own[name] != nil {
						cfg.Rules = append(cfg.Rules, nethttp.Rule{
							Policy: policy(t, core.PolicyConfig{Name: name, Algorithm: c.own[name]}), Key: keyfunc.RemoteIP(),
							Cost: func(*http.Request) int64 { return c.cost },
						})
					}
				}
				if c.plan != nil {
					cfg.Plan = func(*http.Request) (core.Plan, error) { return plan{limits: c.plan}, nil }
				}
				if c.block {
					cfg.Blocks = []nethttp.BlockRule{{
						Policy: bans(t, core.Block{Strikes: 1, Within: time.Hour, For: time.Hour}), Key: keyfunc.RemoteIP(), Denied: true,
					}}
				}
				h := guard(t, cfg).Handler(http.HandlerFunc(ok))
				get(h)
				for i := range 3 { // this process remembers the last ones
					r := get(h)
					if got := body(t, r); r.StatusCode != c.want || !strings.Contains(got, c.body) {
						t.Errorf("request %d: %d, %s", i, r.StatusCode, got)
					}
					wait := r.Header.Get("Retry-After")
					if r.Header.Get("Cache-Control") != "no-store" || (wait == "") != !strings.Contains(c.name, "exhausted") {
						t.Errorf("request %d: %v", i, r.Header)
					}
				}
			})
		})
	}
}

// A client that asks again for what its plan does not include is one that does not heed its limits.
func TestDenialForEverIsAStrike(t *testing.T) {
	g := counted(t, func(cfg *nethttp.Config) {
		cfg.Rules = rules(t, core.PolicyConfig{Name: "p", Algorithm: core.DenyAll{}})
		cfg.Rules[0].Skip = func(r *http.Request) bool { return r.URL.Path != "/export" }
		cfg.Blocks = []nethttp.BlockRule{{
			Policy: bans(t, core.Block{Strikes: 2, Within: time.Hour, For: time.Hour}), Key: keyfunc.RemoteIP(), Denied: true,
		}}
	})
	h := g.Handler(http.HandlerFunc(ok))
	for _, c := range []struct {
		path   string
		status int
	}{{"/", 200}, {"/export", 403}, {"/", 200}, {"/export", 403}, {"/", 429}} {
		answers(t, get(h, asking(c.path)), c.status)
	}
}
