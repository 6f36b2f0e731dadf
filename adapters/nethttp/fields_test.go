package nethttp_test

import (
	"cmp"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
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
			if got := r.Header.Get("RateLimit-Policy"); got != want {
				t.Errorf("%s, response %d, %d: %s", name, i, r.StatusCode, got)
			}
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
			if _, err := httpsfv.UnmarshalList(got); err != nil {
				t.Error(err)
			}
			if all[0].Policy.Unit() != tt.unit {
				t.Errorf("Unit is %v", all[0].Policy.Unit())
			}
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

// The headers of a cached denial state only what is known.
func TestCachedDenial(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		gate := core.Must(core.NewRedis(s.Client(t), core.Config{Prefix: s.Prefix, Timeout: 30 * time.Second}))
		hour := core.TokenBucket{Rate: 1, Per: time.Hour, Burst: 1}
		for _, c := range []struct {
			name         string
			dialect      nethttp.Dialect
			header       string
			asked, known string
		}{
			{"draft", nethttp.Draft11{}, "RateLimit", `"p";r=0;t=3600, "q";r=9;t=6`, `"p";r=0;t=3600`},
			{"legacy", nethttp.Legacy{}, "X-RateLimit-Reset", "3600", "3600"},
		} {
			t.Run(c.name, func(t *testing.T) {
				var known bool
				observe := observed(func(a *nethttp.Admission) { known = a.Decision().Source == core.SourceCache })
				g := guard(t, nethttp.Config{Gate: gate, Dialect: c.dialect, Observe: observe, Rules: []nethttp.Rule{
					{Policy: policy(t, core.PolicyConfig{Name: "p", Algorithm: hour}), Key: keyfunc.Must(keyfunc.Header("User"))},
					{Policy: policy(t, core.PolicyConfig{Name: "q", Algorithm: core.PerMinute(10)}), Key: keyfunc.RemoteIP()},
				}})
				h := g.Handler(http.HandlerFunc(ok))
				named := func(r *http.Request) { r.Header.Set("User", c.name) }
				if r := get(h, named); r.StatusCode != 200 {
					t.Fatal(r.StatusCode, r.Header)
				}
				for range 2 {
					r, want := get(h, named), c.asked
					if known {
						want = c.known
					}
					if r.StatusCode != 429 || r.Header.Get("Retry-After") != "3600" || r.Header.Get(c.header) != want {
						t.Errorf("known %v: %d, %v", known, r.StatusCode, r.Header)
					}
					if c.name == "draft" && r.Header.Get("RateLimit-Policy") != `"p";q=1;w=3600, "q";q=10;w=60` {
						t.Errorf("known %v: %v", known, r.Header)
					}
				}
			})
		}
	})
}
