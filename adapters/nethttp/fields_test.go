package nethttp_test

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
)

// told is what the headers state about one policy, parsed by another implementation of structured
// fields (RFC 9651).
type told map[string]int64

func tells(t rapid.TB, r *http.Response, field string) map[string]told {
	t.Helper()
	values := r.Header.Values(field)
	all := make(map[string]told)
	if len(values) == 0 {
		return all
	}
	list, err := httpsfv.UnmarshalList(values)
	if err != nil {
		t.Fatalf("%s: %v: %v", field, values, err)
	}
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			t.Fatalf("%s: %T", field, member)
		}
		name, ok := item.Value.(string)
		if !ok || all[name] != nil {
			t.Fatalf("%s: %v", field, values)
		}
		all[name] = make(told)
		for _, parameter := range item.Params.Names() {
			value, _ := item.Params.Get(parameter)
			n, ok := value.(int64)
			if !ok {
				t.Fatalf("%s: %s is %v", field, parameter, value)
			}
			all[name][parameter] = n
		}
	}
	return all
}

// retryAfter returns the seconds of Retry-After, or 0 if it is not set.
func retryAfter(t rapid.TB, r *http.Response) int64 {
	t.Helper()
	values := r.Header.Values("Retry-After")
	if len(values) == 0 {
		return 0
	}
	item, err := httpsfv.UnmarshalItem(values)
	n, ok := item.Value.(int64)
	if err != nil || !ok || n < 1 || len(values) > 1 {
		t.Fatalf("Retry-After: %v: %v", values, err)
	}
	return n
}

// Every number in the headers is true. The client can spend what is left and no more, more is
// available in t seconds, and a refused request passes after Retry-After and not a second earlier.
func TestNumbersInHeadersAreExact(t *testing.T) {
	limits := map[string]core.Algorithm{
		"bucket":   core.TokenBucket{Rate: 7, Per: 10 * time.Second, Burst: 12},
		"fast":     core.TokenBucket{Rate: 300, Per: time.Second, Burst: 20},
		"leaky":    core.LeakyBucket{Rate: 3, Per: time.Second, Capacity: 9},
		"fixed":    core.FixedWindow{Limit: 10, Window: 10 * time.Second},
		"sliding":  core.SlidingWindow{Limit: 10, Window: 20 * time.Second},
		"precise":  core.SlidingWindow{Limit: 10, Window: 20 * time.Second, Buckets: 8},
		"log":      core.SlidingLog{Windows: []core.Window{{Limit: 4, Width: time.Second}, {Limit: 20, Width: time.Minute}}},
		"calendar": core.Calendar{Limit: 15, Every: core.PeriodMinute, In: time.UTC},
		"gift":     core.TokenBucket{Burst: 30},
	}
	// The approximations are whole up to a window or a small window later. A log states its
	// tightest window.
	later := map[string]bool{"sliding": true, "precise": true, "log": true}
	var names []string
	for name := range limits {
		names = append(names, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		clock := core.NewManualClock(time.Unix(1_800_000_000, 123_456_000))
		gate := core.Must(core.NewMemory(core.Config{Clock: clock.Now}))
		charges := make(map[string]core.Charge)
		key := core.Must(core.NewKey("all"))
		cfg := nethttp.Config{Gate: gate}
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 4, rapid.ID).Draw(t, "policies") {
			p := core.Must(core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: limits[name]}))
			cost := rapid.Int64Range(1, 4).Draw(t, "cost")
			charges[name] = core.Charge{Policy: p, Key: key, Cost: cost}
			cfg.Rules = append(cfg.Rules, nethttp.Rule{Policy: p, Key: keyfunc.Must(keyfunc.Static("all")), Cost: func(*http.Request) int64 { return cost }})
		}
		g := core.Must(nethttp.NewGuard(cfg))
		h := g.Handler(http.HandlerFunc(ok))
		peek := func(charges ...core.Charge) core.Decision {
			return gatetest.Must(gate.Peek(t.Context(), charges...))(t)
		}
		for range rapid.IntRange(1, 12).Draw(t, "requests") {
			clock.Advance(time.Duration(rapid.Int64Range(0, 3e6).Draw(t, "pause")) * time.Microsecond)
			r := get(h)
			quota, left := tells(t, r, "RateLimit-Policy"), tells(t, r, "RateLimit")
			if len(quota) != len(charges) || len(left) != len(charges) {
				t.Fatalf("%v, %v", r.Header, charges)
			}
			after := func(wait time.Duration, charges ...core.Charge) core.Decision {
				clock.Advance(wait)
				defer clock.Advance(-wait)
				return peek(charges...)
			}
			for name, c := range charges {
				says := left[name]
				c.Cost = cmp.Or(says["r"], core.NoCost)
				if d := peek(c); !d.Allowed {
					t.Errorf("%s: %d are not left", name, says["r"])
				}
				c.Cost = says["r"] + 1
				if d := peek(c); d.Allowed {
					t.Errorf("%s: %d are left", name, says["r"]+1)
				}
				in, some := says["t"]
				if d := after(time.Duration(in)*time.Second, c); some && !d.At(0).Known || some && d.At(0).Remaining <= says["r"] {
					t.Errorf("%s: no more than %d in %d s", name, says["r"], in)
				}
				if d := after(1000*time.Hour, c); !some && d.At(0).Remaining > says["r"] {
					t.Errorf("%s: no t, and more becomes available", name)
				}
				d := peek(c)
				if q := quota[name]["q"]; name != "fast" && q != d.At(0).Limit {
					t.Errorf("%s: q=%d", name, q)
				}
				w, some := quota[name]["w"]
				d = after(time.Duration(w)*time.Second, c)
				if some != (name != "gift") || some && d.At(0).Used > 0 && !later[name] {
					t.Errorf("%s: not refilled in %d s", name, w)
				}
			}
			if wait := retryAfter(t, r); r.StatusCode == http.StatusTooManyRequests {
				var again []core.Charge
				for _, c := range charges {
					again = append(again, c)
				}
				if wait == 0 && after(1000*time.Hour, again...).Allowed {
					t.Error("no Retry-After, and waiting helps")
				}
				if wait > 0 && !after(time.Duration(wait)*time.Second, again...).Allowed {
					t.Errorf("denied after %d s", wait)
				}
				if wait > 1 && after(time.Duration(wait-1)*time.Second, again...).Allowed {
					t.Errorf("allowed before %d s", wait)
				}
			}
		}
	})
}

// RateLimit-Policy states the same quota for a log of several windows in every response, also while
// Redis is down.
func TestLogHasOneQuota(t *testing.T) {
	const want = `"p";q=5;w=10`
	log := rules(t, core.PolicyConfig{Name: "p", Algorithm: core.SlidingLog{Windows: []core.Window{
		{Limit: 3, Width: time.Second}, {Limit: 5, Width: 10 * time.Second},
	}}})
	clock := newClock()
	for name, gate := range map[string]*core.Gate{"memory": memory(t, clock), "Redis is down": dead(t)} {
		h := served(t, nethttp.Config{Gate: gate, Rules: log})
		for i := range 12 {
			r := get(h)
			gatetest.Equal(t, r.Header.Get("RateLimit-Policy"), want, "%s, response %d, %d", name, i, r.StatusCode)
			if i%3 == 2 {
				clock.advance(time.Second)
			}
		}
	}
}

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
			gatetest.Worked(t, gatetest.Err(httpsfv.UnmarshalList(got)))
			gatetest.Equal(t, all[0].Policy.Unit(), tt.unit, "Unit is")
		})
	}
}

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
					Rules: rules(t, core.PolicyConfig{Name: "p", Algorithm: c.limit}),
				}).Handler(http.HandlerFunc(ok))
				admitted, r := get(h), get(h)
				text := body(t, r)
				gatetest.Need(t, r.StatusCode, http.StatusTooManyRequests, "status")
				wait, legacy := r.Header.Get("Retry-After"), strings.HasPrefix(dialect, "Legacy")
				for _, reset := range []string{admitted.Header.Get("X-Ratelimit-Reset"), r.Header.Get("X-Ratelimit-Reset")} {
					gatetest.Equal(t, reset != "", legacy && c.stated, "X-RateLimit-Reset: %q", reset)
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

// named is a Dialect that states one policy under names of its own.
type named struct {
	nethttp.None
	headers nethttp.LimitHeaders
}

func (d named) WriteHeaders(h http.Header, a *nethttp.Admission) {
	d.headers.Write(h, a, func(core.Result) string { return "360" })
}

// A reverse proxy adds the limits of its server to those of the Guard, whatever they are called.
// Clients see those of the Guard.
func TestProxyStatesNoOtherLimit(t *testing.T) {
	for _, prefix := range []string{"X-RateLimit", "RateLimit", "X-Rate-Limit", "Vendor-RateLimit-Requests"} {
		for _, hints := range []int{0, 1, 2} {
			t.Run(fmt.Sprint(prefix, " after ", hints, " early hints"), func(t *testing.T) {
				s := proxied(t, func(w http.ResponseWriter, _ *http.Request) {
					for range hints {
						w.WriteHeader(http.StatusEarlyHints)
					}
					w.Header().Set(prefix+"-Limit", "5000")
					w.Header().Set(prefix+"-Remaining", "4999")
					io.WriteString(w, "hello")
				}, guard(t, nethttp.Config{
					Gate: memory(t, newClock()), Rules: rules(t, core.PolicyConfig{Name: "p", Algorithm: core.PerHour(10)}),
					Dialect: named{headers: nethttp.LimitHeaders{
						Limit: prefix + "-Limit", Remaining: prefix + "-Remaining", Reset: prefix + "-Reset",
					}},
				}).Handler)
				r := gatetest.Must(s.Client().Get(s.URL))(t)
				gatetest.Equal(t, body(t, r), "hello", "got")
				for name, want := range map[string]string{"-Limit": "[10]", "-Remaining": "[9]", "-Reset": "[360]"} {
					gatetest.Equal(t, fmt.Sprint(r.Header.Values(prefix+name)), want, "%s%s is", prefix, name)
				}
			})
		}
	}
}

// A Guard whose limit never is whole again states no Reset, and lets none of the server pass beside it.
func TestProxyStatesNoOtherReset(t *testing.T) {
	for _, hints := range []int{0, 1} {
		s := proxied(t, func(w http.ResponseWriter, _ *http.Request) {
			for range hints {
				w.WriteHeader(http.StatusEarlyHints)
			}
			for name, value := range map[string]string{"Limit": "5000", "Remaining": "4999", "Reset": "1700000000", "Used": "1"} {
				w.Header().Set("X-RateLimit-"+name, value)
			}
		}, guard(t, nethttp.Config{
			Gate: memory(t, newClock()), Rules: rules(t, core.PolicyConfig{Name: "p", Algorithm: core.TokenBucket{Burst: 10}}),
			Dialect: nethttp.Legacy{},
		}).Handler)
		h := gatetest.Must(s.Client().Get(s.URL))(t).Header
		got := fmt.Sprint(h["X-Ratelimit-Limit"], h["X-Ratelimit-Remaining"], h["X-Ratelimit-Reset"], h["X-Ratelimit-Used"])
		gatetest.Equal(t, got, "[10] [9] [] [1]", "after %d early hints", hints)
	}
}

// A Guard inside another one, on a request of the handler's own, keeps no headers of the response that
// the outer one states its limits in.
func TestInnerRequestKeepsItsOwnHeaders(t *testing.T) {
	limited := func(name string, limit int64) *nethttp.Guard {
		return guard(t, nethttp.Config{
			Gate: memory(t, newClock()), Rules: rules(t, core.PolicyConfig{Name: name, Algorithm: core.PerHour(limit)}),
			Dialect: nethttp.Legacy{},
		})
	}
	inner := limited("inner", 5).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Language", "en")
		w.WriteHeader(http.StatusNoContent)
	}))
	s := proxied(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("X-RateLimit-Limit", "5000")
	}, func(proxy http.Handler) http.Handler {
		return limited("outer", 10).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			part := httptest.NewRecorder()
			inner.ServeHTTP(part, r)
			if got := part.Header().Get("X-RateLimit-Limit"); part.Code != http.StatusNoContent || got != "5" {
				t.Errorf("inside: status %d, X-RateLimit-Limit %s", part.Code, got)
			}
			proxy.ServeHTTP(w, r)
		}))
	})
	r := gatetest.Must(s.Client().Get(s.URL))(t)
	body(t, r)
	gatetest.Equal(t, fmt.Sprint(r.Header["X-Ratelimit-Limit"], r.Header["X-Ratelimit-Remaining"]), "[10] [9]", "got")
}

// proxied returns a server of a handler, and of a proxy to upstream in it.
func proxied(t *testing.T, upstream http.HandlerFunc, handler func(proxy http.Handler) http.Handler) *httptest.Server {
	t.Helper()
	up := httptest.NewServer(upstream)
	t.Cleanup(up.Close)
	proxy := httputil.NewSingleHostReverseProxy(core.Must(url.Parse(up.URL)))
	proxy.ModifyResponse = nethttp.KeepHeaders
	s := httptest.NewServer(handler(proxy))
	t.Cleanup(s.Close)
	return s
}

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
		{"spent for ever, of which a cost is clamped to all", limits{"a": core.TokenBucket{Burst: 10}}, nil, false, 11, 0, 429, base + "quota-exceeded"},
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
						rule := nethttp.Rule{
							Policy: policy(t, core.PolicyConfig{Name: name, Algorithm: c.own[name]}), Key: keyfunc.RemoteIP(),
							Cost: func(*http.Request) int64 { return c.cost },
						}
						if strings.Contains(c.name, "clamped") {
							rule.Clamp, rule.Settle = true, nethttp.RefundServerErrors
						}
						cfg.Rules = append(cfg.Rules, rule)
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

// An answer of the proxy's Transport, which has no request, passes.
func TestKeepHeadersOfNoRequest(t *testing.T) {
	guard := core.Must(nethttp.NewGuard(nethttp.Config{Gate: core.Must(core.NewMemory(core.Config{})), Rules: rules(t, core.PolicyConfig{Name: "p", Algorithm: core.PerHour(9)})}))
	proxy := &httputil.ReverseProxy{
		Rewrite: func(*httputil.ProxyRequest) {}, ModifyResponse: nethttp.KeepHeaders,
		Transport: transport(func(*http.Request) *http.Response {
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody}
		}),
	}
	w := httptest.NewRecorder()
	guard.Handler(proxy).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	gatetest.Equal(t, w.Code, http.StatusServiceUnavailable, "status")
}

type transport func(*http.Request) *http.Response

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }
