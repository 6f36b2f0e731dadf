package nethttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/keyfunc"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// clock is a clock that the test moves.
type clock struct{ micros atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.micros.Store(1_800_000_000_000_000)
	return c
}

func (c *clock) Now() time.Time          { return time.UnixMicro(c.micros.Load()) }
func (c *clock) advance(d time.Duration) { c.micros.Add(d.Microseconds()) }

func memory(t *testing.T, c *clock) *core.Gate {
	t.Helper()
	g, err := core.NewMemory(core.Config{Clock: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// dead returns a gate whose Redis refuses connections.
func dead(t *testing.T) *core.Gate {
	t.Helper()
	return deadWith(t, core.Config{})
}

func deadWith(t *testing.T, cfg core.Config) *core.Gate {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	t.Cleanup(func() { client.Close() })
	g, err := core.NewRedis(client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func policy(t *testing.T, cfg core.PolicyConfig) *core.Policy {
	t.Helper()
	p, err := core.NewPolicy(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func guard(t *testing.T, cfg nethttp.Config) *nethttp.Guard {
	t.Helper()
	g, err := nethttp.NewGuard(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// observed returns a Config.Observe that is told of admissions only.
func observed(f func(*nethttp.Admission)) func(context.Context, core.Event) {
	return func(_ context.Context, e core.Event) { f(e.(*nethttp.AdmissionEvent).Admission) }
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

func get(h http.Handler, change ...func(*http.Request)) *http.Response {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// expect compares the status and all headers that state limits. A header without a value must be
// missing.
func expect(t *testing.T, r *http.Response, status int, headers map[string]string) {
	t.Helper()
	if r.StatusCode != status {
		t.Errorf("status %d, want %d", r.StatusCode, status)
	}
	for _, name := range []string{
		"RateLimit", "RateLimit-Policy", "Retry-After", "Cache-Control", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
	} {
		if got := strings.Join(r.Header.Values(name), " | "); got != headers[name] {
			t.Errorf("%s: %q, want %q", name, got, headers[name])
		}
	}
}

func TestLimit(t *testing.T) {
	c := newClock()
	limit, err := nethttp.Limit(memory(t, c), "hello", core.TokenBucket{Rate: 30, Per: time.Minute, Burst: 3}, keyfunc.RemoteIP())
	if err != nil {
		t.Fatal(err)
	}
	h := limit.Handler(http.HandlerFunc(ok))
	const quota = `"hello";q=3;w=6`
	expect(t, get(h), 200, map[string]string{"RateLimit": `"hello";r=2;t=2`, "RateLimit-Policy": quota})
	expect(t, get(h), 200, map[string]string{"RateLimit": `"hello";r=1;t=2`, "RateLimit-Policy": quota})
	c.advance(500 * time.Millisecond)
	expect(t, get(h), 200, map[string]string{"RateLimit": `"hello";r=0;t=2`, "RateLimit-Policy": quota})
	denied := get(h)
	expect(t, denied, 429, map[string]string{
		"RateLimit": `"hello";r=0;t=2`, "RateLimit-Policy": quota, "Retry-After": "2", "Cache-Control": "no-store",
	})
	if got := denied.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
	const want = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded",` +
		`"status":429,"detail":"The quota of policy \"hello\" is exhausted.","violated-policies":["hello"],"retryAfter":2}` + "\n"
	if got := body(t, denied); got != want {
		t.Errorf("body %s", got)
	}
	expect(t, get(h, func(r *http.Request) { r.RemoteAddr = "192.0.2.99:1" }), 200,
		map[string]string{"RateLimit": `"hello";r=2;t=2`, "RateLimit-Policy": quota})
	c.advance(2 * time.Second)
	if got := get(h).StatusCode; got != 200 {
		t.Errorf("after Retry-After: %d", got)
	}
}

func TestHeaders(t *testing.T) {
	never := core.TokenBucket{Burst: 2}
	two := []core.PolicyConfig{
		{Name: "burst", Algorithm: core.TokenBucket{Rate: 10, Per: time.Second, Burst: 20}},
		{Name: "daily", Algorithm: core.TokenBucket{Rate: 1000, Per: 24 * time.Hour, Burst: 1000}},
	}
	for _, c := range []struct {
		name     string
		dialect  nethttp.Dialect
		policies []core.PolicyConfig
		spend    int // requests before the one that is checked
		status   int
		want     map[string]string
	}{
		{"two policies", nethttp.Draft11{}, two, 2, 200, map[string]string{
			"RateLimit-Policy": `"burst";q=20;w=2, "daily";q=1000;w=86400`,
			"RateLimit":        `"burst";r=17;t=1, "daily";r=997;t=87`,
		}},
		{"less than a second", nethttp.Draft11{}, []core.PolicyConfig{{Name: "fast", Algorithm: core.TokenBucket{Rate: 100, Per: time.Second, Burst: 10}}}, 0, 200,
			map[string]string{"RateLimit-Policy": `"fast";q=100;w=1`, "RateLimit": `"fast";r=9;t=1`}},
		{"never refills, allowed", nethttp.Draft11{}, []core.PolicyConfig{{Name: "gift", Algorithm: never}}, 0, 200,
			map[string]string{"RateLimit-Policy": `"gift";q=2`, "RateLimit": `"gift";r=1`}},
		{"never refills, denied", nethttp.Draft11{}, []core.PolicyConfig{{Name: "gift", Algorithm: never}}, 2, 429,
			map[string]string{"RateLimit-Policy": `"gift";q=2`, "RateLimit": `"gift";r=0`, "Cache-Control": "no-store"}},
		{"unlimited", nethttp.Draft11{}, []core.PolicyConfig{{Name: "free", Algorithm: core.Unlimited{}}}, 0, 200, nil},
		{"deny all", nethttp.Draft11{}, []core.PolicyConfig{{Name: "shut", Algorithm: core.DenyAll{}}}, 0, 403,
			map[string]string{"RateLimit-Policy": `"shut";q=0`, "RateLimit": `"shut";r=0`, "Cache-Control": "no-store"}},
		{"shadow is not stated", nethttp.Draft11{}, []core.PolicyConfig{{Name: "new", Algorithm: core.TokenBucket{Burst: 1}, Shadow: true}}, 2, 200, nil},
		{"legacy delta, allowed: the smallest part left", nethttp.Legacy{}, two, 2, 200, map[string]string{
			"X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "17", "X-RateLimit-Reset": "1"}},
		{"legacy delta, denied", nethttp.Legacy{}, []core.PolicyConfig{{Name: "few", Algorithm: core.TokenBucket{Rate: 1, Per: time.Minute, Burst: 2}}}, 2, 429,
			map[string]string{"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "120", "Retry-After": "60", "Cache-Control": "no-store"}},
		{"legacy, never refills", nethttp.Legacy{Epoch: true}, []core.PolicyConfig{{Name: "gift", Algorithm: never}}, 0, 200,
			map[string]string{"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "1"}},
		{"no headers, denied", nethttp.None{}, []core.PolicyConfig{{Name: "few", Algorithm: core.TokenBucket{Rate: 1, Per: time.Minute, Burst: 2}}}, 2, 429,
			map[string]string{"Retry-After": "60", "Cache-Control": "no-store"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := nethttp.Config{Gate: memory(t, newClock()), Dialect: c.dialect}
			for _, p := range c.policies {
				cfg.Rules = append(cfg.Rules, nethttp.Rule{Policy: policy(t, p), Key: keyfunc.RemoteIP()})
			}
			h := guard(t, cfg).Handler(http.HandlerFunc(ok))
			for range c.spend {
				get(h)
			}
			expect(t, get(h), c.status, c.want)
		})
	}
	t.Run("legacy epoch", func(t *testing.T) {
		cfg := nethttp.Config{Gate: memory(t, newClock()), Dialect: nethttp.Legacy{Epoch: true}, Rules: []nethttp.Rule{
			{Policy: policy(t, core.PolicyConfig{Name: "hourly", Algorithm: core.PerHour(1)}), Key: keyfunc.RemoteIP()}}}
		before := time.Now().Add(time.Hour).Unix()
		r := get(guard(t, cfg).Handler(http.HandlerFunc(ok)))
		after := time.Now().Add(time.Hour).Unix() + 1
		var reset json.Number = json.Number(r.Header.Get("X-RateLimit-Reset"))
		if n, err := reset.Int64(); err != nil || n < before || n > after {
			t.Errorf("X-RateLimit-Reset %q, want one from %d to %d", reset, before, after)
		}
	})
	t.Run("legacy epoch of a window", func(t *testing.T) {
		c := newClock()
		cfg := nethttp.Config{Gate: memory(t, c), Dialect: nethttp.Legacy{Epoch: true}, Rules: []nethttp.Rule{{
			Policy: policy(t, core.PolicyConfig{Name: "hourly", Algorithm: core.FixedWindow{Limit: 2, Window: time.Hour}}),
			Key:    keyfunc.RemoteIP(),
		}}}
		h := guard(t, cfg).Handler(http.HandlerFunc(ok))
		want := strconv.FormatInt(c.Now().Truncate(time.Hour).Add(time.Hour).Unix(), 10)
		for range 3 { // one is denied
			if got := get(h).Header.Get("X-RateLimit-Reset"); got != want {
				t.Errorf("X-RateLimit-Reset %s, want %s", got, want)
			}
			c.advance(7654321 * time.Microsecond)
		}
	})
}

func TestTwoRulesAreOneDecision(t *testing.T) {
	c := newClock()
	tenant := policy(t, core.PolicyConfig{Name: "tenant", Algorithm: core.PerMinute(2)})
	user := policy(t, core.PolicyConfig{Name: "user", Algorithm: core.PerMinute(100)})
	gate := memory(t, c)
	g := guard(t, nethttp.Config{Gate: gate, Scope: keyfunc.Must(keyfunc.Header("X-Tenant")), Rules: []nethttp.Rule{
		{Policy: tenant, Key: keyfunc.Must(keyfunc.Static("all"))},
		{Policy: user, Key: keyfunc.Must(keyfunc.Header("X-Api-Key")), Cost: func(r *http.Request) int64 { return 3 }},
	}})
	h := g.Handler(http.HandlerFunc(ok))
	as := func(tenant, key string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("X-Tenant", tenant); r.Header.Set("X-Api-Key", key) }
	}
	get(h, as("acme", "k1"))
	get(h, as("acme", "k1"))
	expect(t, get(h, as("acme", "k1")), 429, map[string]string{
		"RateLimit":        `"tenant";r=0;t=30, "user";r=94;t=1`, // the third request spent nothing under user
		"RateLimit-Policy": `"tenant";q=2;w=60, "user";q=100;w=60`,
		"Retry-After":      "30", "Cache-Control": "no-store",
	})
	if r := get(h, as("other", "k1")); r.StatusCode != 200 || !strings.Contains(r.Header.Get("RateLimit"), `"user";r=97`) {
		t.Errorf("the same key of another tenant: %d, %s", r.StatusCode, r.Header.Get("RateLimit"))
	}
}

func TestNoKey(t *testing.T) {
	broken := func(*http.Request) (string, error) { return "", errors.New("secret detail") }
	empty := func(*http.Request) (string, error) { return "", nil }
	for _, c := range []struct {
		name   string
		rule   nethttp.Rule
		scope  keyfunc.Func
		status int
	}{
		{"missing header", nethttp.Rule{Key: keyfunc.Must(keyfunc.Header("X-Api-Key"))}, nil, 400},
		{"missing header, skipped", nethttp.Rule{Key: keyfunc.Must(keyfunc.Header("X-Api-Key")), NoKey: nethttp.NoKeySkip}, nil, 200},
		{"empty key", nethttp.Rule{Key: empty}, nil, 400},
		{"empty key, skipped", nethttp.Rule{Key: empty, NoKey: nethttp.NoKeySkip}, nil, 200},
		{"missing scope", nethttp.Rule{Key: keyfunc.RemoteIP()}, keyfunc.Must(keyfunc.Header("X-Tenant")), 400},
		{"missing scope, the key may be missing", nethttp.Rule{Key: keyfunc.RemoteIP(), NoKey: nethttp.NoKeySkip}, keyfunc.Must(keyfunc.Header("X-Tenant")), 400},
		{"empty scope", nethttp.Rule{Key: keyfunc.RemoteIP()}, empty, 400},
		{"failing key", nethttp.Rule{Key: broken, NoKey: nethttp.NoKeySkip}, nil, 500},
		{"failing scope", nethttp.Rule{Key: keyfunc.RemoteIP()}, broken, 500},
		{"negative cost", nethttp.Rule{Key: keyfunc.RemoteIP(), Cost: func(*http.Request) int64 { return -1 }}, nil, 500},
		{"skipped", nethttp.Rule{Key: broken, Skip: func(*http.Request) bool { return true }}, nil, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.rule.Policy = policy(t, core.PolicyConfig{Name: "p", Algorithm: core.PerMinute(1)})
			var seen *nethttp.Admission
			h := guard(t, nethttp.Config{
				Gate: memory(t, newClock()), Rules: []nethttp.Rule{c.rule}, Scope: c.scope,
				Observe: observed(func(a *nethttp.Admission) { seen = a }),
			}).Handler(http.HandlerFunc(ok))
			for range 3 { // a skipped request is not counted, and a refused one has no key
				r := get(h)
				if r.StatusCode != c.status {
					t.Fatalf("status %d, want %d", r.StatusCode, c.status)
				}
				if s := body(t, r); strings.Contains(s, "secret") || strings.Contains(s, "X-Api-Key") {
					t.Errorf("the body reveals: %s", s)
				}
			}
			if (seen.Err() != nil) != (c.status != 200) {
				t.Errorf("Err is %v", seen.Err())
			}
		})
	}
}

func TestRedisDown(t *testing.T) {
	for _, c := range []struct {
		name     string
		mode     core.FailureMode
		statuses []int
		want     map[string]string
	}{
		{"local", core.FailLocal, []int{200, 200, 429}, map[string]string{
			"RateLimit-Policy": `"p";q=2;w=120`, "Retry-After": "60", "Cache-Control": "no-store"}},
		{"open", core.FailOpen, []int{200, 200, 200}, map[string]string{"RateLimit-Policy": `"p";q=2;w=120`}},
		{"closed", core.FailClosed, []int{503, 503, 503}, map[string]string{
			"RateLimit-Policy": `"p";q=2;w=120`, "Retry-After": "1", "Cache-Control": "no-store"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := policy(t, core.PolicyConfig{
				Name: "p", Algorithm: core.TokenBucket{Rate: 1, Per: time.Minute, Burst: 2}, OnFailure: c.mode})
			h := guard(t, nethttp.Config{Gate: dead(t), Rules: []nethttp.Rule{
				{Policy: p, Key: keyfunc.RemoteIP()}}}).Handler(http.HandlerFunc(ok))
			for i, status := range c.statuses {
				r := get(h)
				if i < len(c.statuses)-1 {
					if r.StatusCode != status {
						t.Errorf("request %d: status %d, want %d", i, r.StatusCode, status)
					}
					continue
				}
				expect(t, r, status, c.want)
				if s := body(t, r); status == 503 && !strings.Contains(s, "#temporary-reduced-capacity") {
					t.Errorf("body %s", s)
				}
			}
		})
	}
}

func TestRefuse(t *testing.T) {
	p := policy(t, core.PolicyConfig{Name: "p", Algorithm: core.DenyAll{}})
	rules := []nethttp.Rule{{Policy: p, Key: keyfunc.RemoteIP()}}
	own := guard(t, nethttp.Config{Gate: memory(t, newClock()), Rules: rules,
		Refuse: func(w http.ResponseWriter, _ *http.Request, a *nethttp.Admission) {
			w.Header().Set("Ratelimit", "mine")
			w.WriteHeader(418)
			_, _ = io.WriteString(w, strings.Join(a.Violated(), ","))
		}}).Handler(http.HandlerFunc(ok))
	if r := get(own); r.StatusCode != 418 || body(t, r) != "p" || r.Header.Get("RateLimit") != "mine" {
		t.Errorf("own refusal: %d %v", r.StatusCode, r.Header)
	}
	blank := guard(t, nethttp.Config{Gate: memory(t, newClock()), Rules: rules, Dialect: nethttp.Draft11{Refusal: nethttp.Refusal{ProblemBase: nethttp.AboutBlank}}}).Handler(http.HandlerFunc(ok))
	if s := body(t, get(blank)); !strings.HasPrefix(s, `{"type":"about:blank","title":"Forbidden"`) {
		t.Errorf("about:blank: %s", s)
	}
	head := get(blank, func(r *http.Request) { r.Method = http.MethodHead })
	if s := body(t, head); s != "" || head.StatusCode != 403 || head.Header.Get("Content-Length") == "0" {
		t.Errorf("HEAD: %d %q %v", head.StatusCode, s, head.Header)
	}
}

func TestHandlerSeesTheDecision(t *testing.T) {
	limit, err := nethttp.Limit(memory(t, newClock()), "hello", core.PerMinute(5), keyfunc.RemoteIP())
	if err != nil {
		t.Fatal(err)
	}
	h := limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := nethttp.AdmissionFromContext(r.Context()).Decision()
		if !d.Allowed || d.At(0).Remaining != 4 {
			t.Errorf("decision %+v", d)
		}
		w.Header().Del("RateLimit")
	}))
	if r := get(h); r.Header.Get("RateLimit") != "" {
		t.Error("the handler cannot remove a header")
	}
	if a := nethttp.AdmissionFromContext(context.Background()); a != nil || a.Decision().Len() != 0 {
		t.Error("a decision in a context without one")
	}
}

func TestStackedGuards(t *testing.T) {
	gate := memory(t, newClock())
	of := func(name string, limit core.Algorithm) func(http.Handler) http.Handler {
		return guard(t, nethttp.Config{Gate: gate, Rules: []nethttp.Rule{
			{Policy: policy(t, core.PolicyConfig{Name: name, Algorithm: limit}), Key: keyfunc.RemoteIP()}}}).Handler
	}
	h := of("outer", core.PerMinute(60))(of("inner", core.PerMinute(1))(http.HandlerFunc(ok)))
	get(h)
	expect(t, get(h), 429, map[string]string{
		"RateLimit":        `"outer";r=58;t=1 | "inner";r=0;t=60`,
		"RateLimit-Policy": `"outer";q=60;w=60 | "inner";q=1;w=60`,
		"Retry-After":      "60", "Cache-Control": "no-store",
	})
}

// Two guards with legacy headers state the limit with the smaller part left.
func TestStackedGuardsWithLegacyHeaders(t *testing.T) {
	gate := memory(t, newClock())
	of := func(name string, limit core.Algorithm) func(http.Handler) http.Handler {
		return guard(t, nethttp.Config{Gate: gate, Dialect: nethttp.Legacy{}, Rules: []nethttp.Rule{
			{Policy: policy(t, core.PolicyConfig{Name: name, Algorithm: limit}), Key: keyfunc.RemoteIP()}}}).Handler
	}
	few, many := of("few", core.PerMinute(2)), of("many", core.PerMinute(100))
	for _, h := range []http.Handler{few(many(http.HandlerFunc(ok))), many(few(http.HandlerFunc(ok)))} {
		if r := get(h); r.Header.Get("X-RateLimit-Limit") != "2" {
			t.Errorf("%v", r.Header)
		}
	}
}

// The request outside the guard has the pattern that the mux inside sets, also if the handler
// panics. The handler's ResponseWriter unwraps to the one outside the guard.
func TestPatternAndWriterPassThrough(t *testing.T) {
	limit, err := nethttp.Limit(memory(t, newClock()), "hello", core.PerMinute(5), keyfunc.RemoteIP())
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", func(w http.ResponseWriter, r *http.Request) {
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			t.Fatalf("%T", w)
		}
		if _, ok := inner.Unwrap().(*httptest.ResponseRecorder); !ok {
			t.Errorf("below %T is %T", w, inner.Unwrap())
		}
	})
	mux.HandleFunc("GET /panic", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for path, want := range map[string]string{"/users/7": "GET /users/{id}", "/panic": "GET /panic"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		func() {
			defer func() {
				if p := recover(); (p != nil) != (path == "/panic") || p != nil && p != http.ErrAbortHandler {
					t.Errorf("%s: panic %v", path, p)
				}
			}()
			limit.Handler(mux).ServeHTTP(httptest.NewRecorder(), r)
		}()
		if r.Pattern != want {
			t.Errorf("%s: pattern %q, want %q", path, r.Pattern, want)
		}
	}
}

func TestNewGuardFaults(t *testing.T) {
	p := policy(t, core.PolicyConfig{Name: "p", Algorithm: core.PerMinute(1)})
	_, err := nethttp.NewGuard(nethttp.Config{Rules: []nethttp.Rule{
		{Policy: p, Key: keyfunc.RemoteIP()}, {Policy: p, NoKey: 7}, {Key: keyfunc.RemoteIP()},
	}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"nethttp: Config.Gate is nil", `Config.Rules[1].Policy is named "p", like that of another rule`, "Config.Rules[1].Key is nil",
		"Config.Rules[1].NoKey is 7", "Config.Rules[2].Policy is missing",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%v", want, err)
		}
	}
	if _, err := nethttp.NewGuard(nethttp.Config{Gate: memory(t, newClock())}); err == nil || !strings.Contains(err.Error(), "Config.Rules is empty") {
		t.Errorf("no rules: %v", err)
	}
	if _, err := nethttp.Limit(memory(t, newClock()), "hello", core.TokenBucket{}, keyfunc.RemoteIP()); err == nil || !strings.Contains(err.Error(), "TokenBucket.Burst is 0") {
		t.Errorf("Limit: %v", err)
	}
}

func TestRequestOfGoneClientIsNotCharged(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	limit, err := nethttp.Limit(memory(t, newClock()), "hello", core.PerMinute(1), keyfunc.RemoteIP())
	if err != nil {
		t.Fatal(err)
	}
	h := limit.Handler(http.HandlerFunc(ok))
	if r := get(h, func(r *http.Request) { *r = *r.WithContext(ctx) }); r.StatusCode != 503 {
		t.Errorf("status %d", r.StatusCode)
	}
	if r := get(h); r.StatusCode != 200 {
		t.Errorf("a request whose client was gone was counted: %d", r.StatusCode)
	}
}
