// Package adapters_test plays the rows of one table on every framework, which must all answer
// alike.
package adapters_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	echov4 "github.com/labstack/echo/v4"
	echov4middleware "github.com/labstack/echo/v4/middleware"
	"github.com/labstack/echo/v5"
	echomiddleware "github.com/labstack/echo/v5/middleware"
	"github.com/redis/go-redis/v9"

	chigate "github.com/headgate/headgate/adapters/chi"
	echogate "github.com/headgate/headgate/adapters/echo"
	echov5gate "github.com/headgate/headgate/adapters/echov5"
	gingate "github.com/headgate/headgate/adapters/gin"
	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
)

// fixture is one app on a server of one framework.
type fixture struct {
	t      *testing.T
	gate   *core.Gate
	clock  *core.ManualClock
	server *httptest.Server

	mu   sync.Mutex
	keys []string // that the rules derived from the last request
}

func newFixture(t *testing.T) *fixture {
	clock := core.NewManualClock(time.Unix(1_800_000_000, 0))
	return &fixture{t: t, clock: clock, gate: core.Must(core.NewMemory(core.Config{Clock: clock.Now}))}
}

// dead replaces the gate with one whose Redis refuses connections.
func (f *fixture) dead() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	f.t.Cleanup(func() { client.Close() })
	f.gate = core.Must(core.NewRedis(client, core.Config{}))
}

func (f *fixture) policy(cfg core.PolicyConfig) *core.Policy {
	f.t.Helper()
	return core.Must(core.NewPolicy(cfg))
}

// recorded returns a Func that records the keys of key. Patterns are spelled as in http.ServeMux.
func (f *fixture) recorded(key keyfunc.Func) keyfunc.Func {
	return func(r *http.Request) (string, error) {
		k, err := key(r)
		f.mu.Lock()
		defer f.mu.Unlock()
		if err == nil {
			f.keys = append(f.keys, spelled(k))
		}
		return k, err
	}
}

func spelled(pattern string) string {
	parts := strings.Split(pattern, "/")
	for i, p := range parts {
		if name, ok := strings.CutPrefix(p, ":"); ok {
			parts[i] = "{" + name + "}"
		}
	}
	return strings.Join(parts, "/")
}

func (f *fixture) guard(cfg nethttp.Config) *nethttp.Guard {
	cfg.Gate = f.gate
	return core.Must(nethttp.NewGuard(cfg))
}

// limit is a guard of one rule by the client's address.
func (f *fixture) limit(p core.PolicyConfig, change ...func(*nethttp.Rule)) *nethttp.Guard {
	return f.spoken(nil, p, change...)
}

// spoken is limit in a Dialect.
func (f *fixture) spoken(d nethttp.Dialect, p core.PolicyConfig, change ...func(*nethttp.Rule)) *nethttp.Guard {
	cfg := nethttp.Config{Dialect: d}
	only(p, change...)(f, &cfg)
	return f.guard(cfg)
}

// perRoute allows three requests a minute of each route, and 100 of each client address.
func (f *fixture) perRoute() nethttp.Config {
	return nethttp.Config{Rules: []nethttp.Rule{
		{Policy: f.policy(core.PolicyConfig{Name: "address", Algorithm: core.PerMinute(100)}), Key: keyfunc.RemoteIP()},
		{Policy: f.policy(core.PolicyConfig{Name: "route", Algorithm: core.PerMinute(3)}), Key: f.recorded(keyfunc.Route())},
	}}
}

// perItem is the guard of the mounted part.
func (f *fixture) perItem() nethttp.Config {
	return nethttp.Config{Rules: []nethttp.Rule{
		{Policy: f.policy(core.PolicyConfig{Name: "item", Algorithm: core.PerMinute(2)}),
			Key: keyfunc.Must(keyfunc.Join(f.recorded(keyfunc.Route()), f.recorded(keyfunc.Must(keyfunc.PathValue("id"))))), NoKey: nethttp.NoKeySkip},
	}}
}

var routes = []route{
	{"GET", "/users/{id}", user},
	{"GET", "/t/{tenant}/reports", user},
	{"POST", "/users", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "created %s, %v\n", body, err)
	}},
	{"GET", "/empty", func(http.ResponseWriter, *http.Request) {}},
	{"GET", "/fails", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", http.StatusBadGateway) }},
	{"GET", "/unlimited", func(w http.ResponseWriter, _ *http.Request) { w.Header().Del("Ratelimit"); fmt.Fprintln(w, "ok") }},
	{"GET", "/panic", func(http.ResponseWriter, *http.Request) { panic("handler's own") }},
	{"GET", "/api/items/{id}", user},
	{"GET", "/api/v1/items/{id}", user},
	{"DELETE", "/api/items/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }},
}

// user responds with what the adapter has set on the request.
func user(w http.ResponseWriter, r *http.Request) {
	a := nethttp.AdmissionFromContext(r.Context())
	d, ok := a.Decision(), a != nil
	fmt.Fprintf(w, "user %s%s, decided %v, allowed %v", r.PathValue("id"), r.PathValue("tenant"), ok, d.Allowed)
	for i := range d.Len() {
		fmt.Fprintf(w, ", %s %d", d.At(i).Policy.Name(), d.At(i).Remaining)
	}
	fmt.Fprintf(w, ", route %s\n", spelled(r.Pattern[strings.Index(r.Pattern, "/"):]))
}

func (f *fixture) serve(build func(*app) http.Handler, a *app, http2 bool) {
	f.server = httptest.NewUnstartedServer(build(a))
	f.server.EnableHTTP2 = http2
	if http2 {
		f.server.StartTLS()
	} else {
		f.server.Start()
	}
	f.t.Cleanup(f.server.Close)
}

// answer is the part of a response that must be the same in every framework.
type answer struct {
	Status  int
	Header  http.Header
	Body    string
	Trailer http.Header
}

// ask sends a request such as "GET /users/1" or "POST /users body".
func (f *fixture) ask(request string, headers ...string) answer {
	f.t.Helper()
	f.mu.Lock()
	f.keys = nil
	f.mu.Unlock()
	method, target, _ := strings.Cut(request, " ")
	target, body, _ := strings.Cut(target, " ")
	r := core.Must(http.NewRequest(method, f.server.URL+target, strings.NewReader(body)))
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	client := *f.server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := client.Do(r)
	if err != nil {
		return answer{Body: "no answer"}
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	gatetest.Is(f.t, err, nil, "%s", request)
	response.Header.Del("Date")
	return answer{response.StatusCode, response.Header, string(read), response.Trailer}
}

// limits returns the headers that state limits.
func (a answer) limits() map[string]string {
	limits := make(map[string]string)
	for _, name := range []string{
		"Ratelimit", "Ratelimit-Policy", "Retry-After", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset",
	} {
		if v := a.Header.Values(name); len(v) > 0 {
			limits[name] = strings.Join(v, " | ")
		}
	}
	return limits
}

// row is one request after some others, and the answer that every framework gives.
type row struct {
	name    string
	root    func(*fixture, *nethttp.Config) // changes the guard of the whole app
	inner   bool                            // the mounted part has its own guard
	before  []string
	with    []string // headers of the requests before
	request string
	headers []string

	status   int
	differs  map[string]int // the status in a framework that routes differently
	own      bool           // the framework answers, and only the limits are the same everywhere
	unseen   string         // the framework that answers before its middleware runs
	keys     []string       // of the rules that record them
	otherKey map[string]string
	limits   map[string]string // the headers that state limits, if the row is about them
}

const quotas = `"address";q=100;w=60, "route";q=3;w=60`

func left(address, route int) map[string]string {
	return map[string]string{
		"Ratelimit":        fmt.Sprintf(`"address";r=%d;t=1, "route";r=%d;t=20`, address, route),
		"Ratelimit-Policy": quotas,
	}
}

func refused(address int) map[string]string {
	return map[string]string{
		"Ratelimit":        fmt.Sprintf(`"address";r=%d;t=1, "route";r=0;t=20`, address),
		"Ratelimit-Policy": quotas, "Retry-After": "20",
	}
}

func speaks(d nethttp.Dialect) func(*fixture, *nethttp.Config) {
	return func(_ *fixture, cfg *nethttp.Config) { cfg.Dialect = d }
}

// only replaces the rules with one by the client's address.
func only(p core.PolicyConfig, change ...func(*nethttp.Rule)) func(*fixture, *nethttp.Config) {
	return func(f *fixture, cfg *nethttp.Config) {
		if p.Name == "" {
			p.Name = "p"
		}
		rule := nethttp.Rule{Policy: f.policy(p), Key: keyfunc.RemoteIP()}
		for _, c := range change {
			c(&rule)
		}
		cfg.Rules = []nethttp.Rule{rule}
	}
}

func keyed(key keyfunc.Func) func(*nethttp.Rule) { return func(r *nethttp.Rule) { r.Key = key } }

func down(mode core.FailureMode) func(*fixture, *nethttp.Config) {
	return func(f *fixture, cfg *nethttp.Config) {
		f.dead()
		only(core.PolicyConfig{Algorithm: core.PerMinute(2), OnFailure: mode})(f, cfg)
	}
}

var one = core.PolicyConfig{Algorithm: core.PerMinute(1)}

func broken(*http.Request) (string, error) { return "", errors.New("secret detail") }

var rows = []row{
	{name: "allowed", request: "GET /users/1", status: 200, keys: []string{"/users/{id}"}, limits: left(99, 2)},
	{name: "second request of a route", before: []string{"GET /users/1"}, request: "GET /users/2", status: 200, keys: []string{"/users/{id}"}, limits: left(98, 1)},
	{name: "another route", before: []string{"GET /users/1"}, request: "GET /empty", status: 200, keys: []string{"/empty"}, limits: left(98, 2)},
	{name: "last request of a limit", before: []string{"GET /users/1", "GET /users/1"}, request: "GET /users/1", status: 200, limits: left(97, 0)},
	{name: "refused", before: slices.Repeat([]string{"GET /users/1"}, 3), request: "GET /users/1", status: 429, keys: []string{"/users/{id}"}, limits: refused(97)},
	{name: "refusals spend nothing", before: slices.Repeat([]string{"GET /users/1"}, 9), request: "GET /users/2", status: 429, limits: refused(97)},
	{name: "routes have their own limits", before: slices.Repeat([]string{"GET /users/1"}, 4), request: "GET /empty", status: 200, limits: left(96, 2)},
	{name: "query does not change the route", before: []string{"GET /users/1?a=1"}, request: "GET /users/1?a=2", status: 200, keys: []string{"/users/{id}"}, limits: left(98, 1)},
	{name: "escaped letter", request: "GET /users/%61", status: 200, keys: []string{"/users/{id}"}, own: true},
	{name: "umlaut", request: "GET /users/%C3%BC", status: 200, keys: []string{"/users/{id}"}},
	{name: "space", request: "GET /users/a%20b", status: 200, keys: []string{"/users/{id}"}},
	{name: "dots", request: "GET /users/a..b", status: 200, keys: []string{"/users/{id}"}},
	{name: "wildcard inside the path", request: "GET /t/acme/reports", status: 200, keys: []string{"/t/{tenant}/reports"}},
	{name: "POST with a body", request: "POST /users body", status: 201, keys: []string{"/users"}, limits: left(99, 2)},
	{name: "POST refused with a body", before: slices.Repeat([]string{"POST /users a"}, 3), request: "POST /users body", status: 429, limits: refused(97)},
	{name: "empty answer", request: "GET /empty", status: 200, limits: left(99, 2)},
	{name: "handler's own error", request: "GET /fails", status: 502, limits: left(99, 2)},
	{name: "handler removes a header", request: "GET /unlimited", status: 200, limits: map[string]string{"Ratelimit-Policy": quotas}},
	{name: "HEAD", request: "HEAD /users/1", status: 200, keys: []string{"/users/{id}"}, own: true, limits: left(99, 2)},
	{name: "HEAD shares GET's quota", before: slices.Repeat([]string{"GET /users/1"}, 2), request: "HEAD /users/1", status: 200, own: true, limits: left(97, 0)},
	{name: "HEAD refused", before: slices.Repeat([]string{"GET /users/1"}, 3), request: "HEAD /users/1", status: 429, limits: refused(97)},
	{name: "GET refused after HEAD", before: slices.Repeat([]string{"HEAD /users/1"}, 3), request: "GET /users/1", status: 429, limits: refused(97)},
	{name: "panic", request: "GET /panic", status: 500, own: true, limits: left(99, 2)},
	{name: "panic is charged", before: slices.Repeat([]string{"GET /panic"}, 3), request: "GET /panic", status: 429, limits: refused(97)},

	{name: "404", request: "GET /nope", status: 404, own: true, keys: []string{keyfunc.Unmatched}, limits: left(99, 2)},
	{name: "404 of the root", request: "GET /", status: 404, own: true, keys: []string{keyfunc.Unmatched}},
	{name: "404 beside a wildcard", request: "GET /t/acme/nope?a=b", status: 404, own: true, keys: []string{keyfunc.Unmatched}},
	{name: "all 404s share a key", before: []string{"GET /a", "GET /b/c", "GET /d?e"}, request: "GET /nope", status: 429, keys: []string{keyfunc.Unmatched}, limits: refused(97)},
	{name: "404 spends nothing of a route", before: slices.Repeat([]string{"GET /nope"}, 4), request: "GET /users/1", status: 200, limits: left(96, 2)},
	{name: "405", request: "PUT /users/1", status: 405, own: true, keys: []string{keyfunc.Unmatched}, otherKey: map[string]string{"echo": "/users/{id}", "echov5": "/users/{id}"}, limits: left(99, 2)},
	{name: "unknown method", request: "FOO /users/1", status: 405, own: true, keys: []string{keyfunc.Unmatched}, otherKey: map[string]string{"echo": "/users/{id}", "echov5": "/users/{id}"}},
	{name: "OPTIONS", request: "OPTIONS /users/1", status: 405, differs: map[string]int{"echo": 204, "echov5": 204}, own: true, keys: []string{keyfunc.Unmatched}, otherKey: map[string]string{"echo": "/users/{id}", "echov5": "/users/{id}"}},
	{name: "trailing slash", request: "GET /users/1/", status: 404, differs: map[string]int{"gin": 301, "echo": 200, "echov5": 200}, own: true, unseen: "gin", keys: []string{keyfunc.Unmatched}, otherKey: map[string]string{"echo": "/users/{id}", "echov5": "/users/{id}"}},
	{name: "double slash", request: "GET //users/1", status: 404, differs: map[string]int{"net/http": 307}, own: true, unseen: "net/http", limits: left(99, 2), keys: []string{keyfunc.Unmatched}},
	{name: "double slash inside", request: "GET /users//1", status: 404, differs: map[string]int{"net/http": 307, "echo": 200, "echov5": 200}, own: true, unseen: "net/http", limits: left(99, 2), keys: []string{keyfunc.Unmatched}, otherKey: map[string]string{"echo": "/users/{id}", "echov5": "/users/{id}"}},
	{name: "escaped slash", request: "GET /users/a%2Fb", status: 200, differs: map[string]int{"gin": 404}, own: true, keys: []string{"/users/{id}"}, otherKey: map[string]string{"gin": keyfunc.Unmatched}},
	{name: "upper case", request: "GET /USERS/1", status: 404, own: true, keys: []string{keyfunc.Unmatched}},
	{name: "dot segments", request: "GET /users/../users/1", status: 404, differs: map[string]int{"net/http": 307, "echo": 200, "echov5": 200}, own: true, unseen: "net/http", limits: left(99, 2), keys: []string{keyfunc.Unmatched}, otherKey: map[string]string{"echo": "/users/{id}", "echov5": "/users/{id}"}},

	{name: "mounted", request: "GET /api/items/7", status: 200, keys: []string{"/api/items/{id}"}, limits: left(99, 2)},
	{name: "mounted two levels deep", request: "GET /api/v1/items/7", status: 200, keys: []string{"/api/v1/items/{id}"}, limits: left(99, 2)},
	{name: "mounted, another method", request: "DELETE /api/items/7", status: 204, keys: []string{"/api/items/{id}"}, limits: left(99, 2)},
	{name: "mounted, refused", before: slices.Repeat([]string{"GET /api/items/7"}, 3), request: "GET /api/items/8", status: 429, limits: refused(97)},
	{name: "mounted, 404", request: "GET /api/nope", status: 404, own: true, keys: []string{keyfunc.Unmatched}, limits: left(99, 2)},
	{name: "mounted, 405", request: "PUT /api/items/7", status: 405, own: true, keys: []string{keyfunc.Unmatched}, otherKey: map[string]string{"echo": "/api/items/{id}", "echov5": "/api/items/{id}"}},
	{name: "guarded inside too", inner: true, request: "GET /api/items/7", status: 200, keys: []string{"/api/items/{id}", "/api/items/{id}", "7"}, limits: map[string]string{
		"Ratelimit":        `"address";r=99;t=1, "route";r=2;t=20 | "item";r=1;t=30`,
		"Ratelimit-Policy": quotas + ` | "item";q=2;w=60`,
	}},
	{name: "refused inside", inner: true, before: slices.Repeat([]string{"GET /api/items/7"}, 2), request: "GET /api/items/7", status: 429, limits: map[string]string{
		"Ratelimit":        `"address";r=97;t=1, "route";r=0;t=20 | "item";r=0;t=30`,
		"Ratelimit-Policy": quotas + ` | "item";q=2;w=60`, "Retry-After": "30",
	}},
	{name: "another item", inner: true, before: slices.Repeat([]string{"GET /api/items/7"}, 2), request: "GET /api/items/8", status: 200},
	{name: "outside the mount", inner: true, request: "GET /users/1", status: 200, limits: left(99, 2)},

	{name: "legacy headers", root: speaks(nethttp.Legacy{}), request: "GET /users/1", status: 200, limits: map[string]string{
		"X-Ratelimit-Limit": "3", "X-Ratelimit-Remaining": "2", "X-Ratelimit-Reset": "20"}},
	{name: "legacy headers, refused", root: speaks(nethttp.Legacy{}), before: slices.Repeat([]string{"GET /users/1"}, 3), request: "GET /users/1", status: 429,
		limits: map[string]string{"X-Ratelimit-Limit": "3", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "60", "Retry-After": "20"}},
	{name: "no headers", root: speaks(nethttp.None{}), request: "GET /users/1", status: 200, limits: map[string]string{}},
	{name: "no headers, refused", root: speaks(nethttp.None{}), before: slices.Repeat([]string{"GET /users/1"}, 3), request: "GET /users/1", status: 429, limits: map[string]string{"Retry-After": "20"}},
	{name: "no wait helps", root: only(core.PolicyConfig{Algorithm: core.DenyAll{}}), request: "GET /users/1", status: 403,
		limits: map[string]string{"Ratelimit": `"p";r=0`, "Ratelimit-Policy": `"p";q=0`}},
	{name: "unlimited", root: only(core.PolicyConfig{Algorithm: core.Unlimited{}}), request: "GET /users/1", status: 200, limits: map[string]string{}},
	{name: "shadow", root: only(core.PolicyConfig{Algorithm: core.DenyAll{}, Shadow: true}), request: "GET /users/1", status: 200, limits: map[string]string{}},
	{name: "key of a header", root: only(one, keyed(keyfunc.Must(keyfunc.Header("X-Api-Key")))), before: []string{"GET /users/1"}, request: "GET /users/1", headers: []string{"X-Api-Key: k"}, status: 200},
	{name: "no key", root: only(one, keyed(keyfunc.Must(keyfunc.Header("X-Api-Key")))), request: "GET /users/1", status: 400, limits: map[string]string{}},
	{name: "no key, skipped", root: only(one, keyed(keyfunc.Must(keyfunc.Header("X-Api-Key"))), func(r *nethttp.Rule) { r.NoKey = nethttp.NoKeySkip }), request: "GET /users/1", status: 200, limits: map[string]string{}},
	{name: "failing key", root: only(one, keyed(broken)), request: "GET /users/1", status: 500, limits: map[string]string{}},
	{name: "path value", root: only(one, keyed(keyfunc.Must(keyfunc.PathValue("tenant")))), before: []string{"GET /t/acme/reports"}, request: "GET /t/acme/reports", status: 429},
	{name: "another path value", root: only(one, keyed(keyfunc.Must(keyfunc.PathValue("tenant")))), before: []string{"GET /t/acme/reports"}, request: "GET /t/umbrella/reports", status: 200},
	{name: "no path value", root: only(one, keyed(keyfunc.Must(keyfunc.PathValue("tenant")))), request: "GET /users/1", status: 400},
	{name: "skipped", root: only(one, func(r *nethttp.Rule) { r.Skip = func(*http.Request) bool { return true } }), before: []string{"GET /users/1"}, request: "GET /users/1", status: 200},
	{name: "cost", root: only(core.PolicyConfig{Algorithm: core.PerMinute(10)}, func(r *nethttp.Rule) { r.Cost = func(*http.Request) int64 { return 7 } }), request: "GET /users/1", status: 200,
		limits: map[string]string{"Ratelimit": `"p";r=3;t=6`, "Ratelimit-Policy": `"p";q=10;w=60`}},
	{name: "cost above what is left", root: only(core.PolicyConfig{Algorithm: core.PerMinute(10)}, func(r *nethttp.Rule) { r.Cost = func(*http.Request) int64 { return 7 } }), before: []string{"GET /users/1"}, request: "GET /users/1", status: 429},
	{name: "scope", root: func(_ *fixture, cfg *nethttp.Config) { cfg.Scope = keyfunc.Must(keyfunc.Header("X-Tenant")) }, request: "GET /users/1", headers: []string{"X-Tenant: acme"}, status: 200, limits: left(99, 2)},
	{name: "another scope", root: func(_ *fixture, cfg *nethttp.Config) { cfg.Scope = keyfunc.Must(keyfunc.Header("X-Tenant")) }, before: slices.Repeat([]string{"GET /users/1"}, 3), with: []string{"X-Tenant: acme"},
		request: "GET /users/1", headers: []string{"X-Tenant: other"}, status: 200, limits: left(99, 2)},
	{name: "no scope", root: func(_ *fixture, cfg *nethttp.Config) { cfg.Scope = keyfunc.Must(keyfunc.Header("X-Tenant")) }, request: "GET /users/1", status: 400, limits: map[string]string{}},
	{name: "Redis down, local", root: down(core.FailLocal), before: []string{"GET /users/1", "GET /users/1"}, request: "GET /users/1", status: 429,
		limits: map[string]string{"Ratelimit-Policy": `"p";q=2;w=60`, "Retry-After": "30"}},
	{name: "Redis down, open", root: down(core.FailOpen), before: []string{"GET /users/1", "GET /users/1"}, request: "GET /users/1", status: 200,
		limits: map[string]string{"Ratelimit-Policy": `"p";q=2;w=60`}},
	{name: "Redis down, closed", root: down(core.FailClosed), request: "GET /users/1", status: 503, limits: map[string]string{"Ratelimit-Policy": `"p";q=2;w=60`, "Retry-After": "1"}},
	{name: "problem without a type", root: func(_ *fixture, cfg *nethttp.Config) {
		cfg.Dialect = nethttp.Draft11{Refusal: nethttp.Refusal{ProblemBase: nethttp.AboutBlank}}
	}, before: slices.Repeat([]string{"GET /users/1"}, 3), request: "GET /users/1", status: 429},
}

func (c row) play(t *testing.T, build func(*app) http.Handler, http2 bool) (answer, []string) {
	f := newFixture(t)
	root := f.perRoute()
	if c.root != nil {
		c.root(f, &root)
	}
	a := &app{root: f.guard(root), routes: routes}
	if c.inner {
		a.inner = f.guard(f.perItem())
	}
	f.serve(build, a, http2)
	for _, b := range c.before {
		f.ask(b, c.with...)
	}
	got := f.ask(c.request, c.headers...)
	f.mu.Lock()
	defer f.mu.Unlock()
	return got, f.keys
}

// settle replaces the rules with one by the client's address that depends on the response.
func settle(how func(*http.Request, int, int64) int64) func(*fixture, *nethttp.Config) {
	return only(core.PolicyConfig{Algorithm: core.PerMinute(2)}, func(r *nethttp.Rule) { r.Settle = how })
}

// streams caps each client at one concurrent request.
func streams(f *fixture, cfg *nethttp.Config) {
	s := core.Must(semaphore.New(f.gate, semaphore.Config{Name: "streams"}))
	cfg.Slot = &nethttp.Slot{Semaphore: s, Caps: []nethttp.Cap{{Name: "streams", Key: keyfunc.RemoteIP(), Limit: 1}}}
}

// behavior has the rows of features other than limits.
var behavior = []row{
	{name: "server errors are refunded", root: settle(nethttp.RefundServerErrors), before: slices.Repeat([]string{"GET /fails"}, 5), request: "GET /users/1", status: 200,
		limits: map[string]string{"Ratelimit": `"p";r=1;t=30`, "Ratelimit-Policy": `"p";q=2;w=60`}},
	{name: "panics are refunded", root: settle(nethttp.RefundServerErrors), before: slices.Repeat([]string{"GET /panic"}, 5), request: "GET /users/1", status: 200},
	{name: "successes are not refunded", root: settle(nethttp.RefundServerErrors), before: slices.Repeat([]string{"GET /users/1"}, 2), request: "GET /users/1", status: 429},
	{name: "404s are not refunded", root: settle(nethttp.RefundServerErrors), before: slices.Repeat([]string{"GET /nope"}, 2), request: "GET /users/1", status: 429},
	{name: "only 404 counts", root: settle(nethttp.CountOnly(404)), before: []string{"GET /users/1", "GET /users/1", "GET /fails", "GET /nope"}, request: "GET /users/1", status: 200,
		limits: map[string]string{"Ratelimit": `"p";r=0;t=30`, "Ratelimit-Policy": `"p";q=2;w=60`}},
	{name: "204 counts", root: settle(nethttp.CountOnly(204)), before: slices.Repeat([]string{"DELETE /api/items/7"}, 2), request: "GET /users/1", status: 429},
	{name: "a response without a status is 200", root: settle(nethttp.CountOnly(200)), before: slices.Repeat([]string{"GET /empty"}, 2), request: "GET /users/1", status: 429},
	{name: "caps are stated", root: streams, before: []string{"GET /users/1", "GET /panic"}, request: "GET /users/1", status: 200, limits: map[string]string{
		"Ratelimit": `"address";r=97;t=1, "route";r=1;t=20`, "Ratelimit-Policy": quotas + `, "streams";q=1;qu="concurrent-requests"`}},
	{name: "skipped", root: func(_ *fixture, cfg *nethttp.Config) { cfg.Skip = func(*http.Request) bool { return true } },
		before: slices.Repeat([]string{"GET /users/1"}, 9), request: "GET /nope", status: 404, own: true, limits: map[string]string{}},
	{name: "preflight", root: func(_ *fixture, cfg *nethttp.Config) { cfg.Skip = nethttp.IsPreflight }, request: "OPTIONS /users/1",
		headers: []string{"Origin: https://example.com", "Access-Control-Request-Method: GET"}, status: 405, differs: map[string]int{"echo": 204, "echov5": 204}, own: true, limits: map[string]string{}},
	{name: "plain refusal", root: func(_ *fixture, cfg *nethttp.Config) {
		cfg.Dialect = nethttp.Draft11{Refusal: nethttp.Refusal{PlainText: true}}
	}, before: slices.Repeat([]string{"GET /users/1"}, 3), request: "GET /users/1", status: 429, limits: refused(97)},
	{name: "OpenAI refusal", root: func(_ *fixture, cfg *nethttp.Config) { cfg.Dialect = llm.OpenAI{RetryWithin: time.Second} }, before: slices.Repeat([]string{"GET /users/1"}, 3), request: "GET /users/1", status: 429, limits: map[string]string{"Retry-After": "20"}},
	{name: "Anthropic refusal", root: func(_ *fixture, cfg *nethttp.Config) { cfg.Dialect = llm.Anthropic{} }, before: slices.Repeat([]string{"GET /users/1"}, 3), request: "GET /users/1", status: 429, limits: map[string]string{"Retry-After": "20"}},
	{name: "Anthropic overload", root: func(f *fixture, cfg *nethttp.Config) { down(core.FailClosed)(f, cfg); cfg.Dialect = llm.Anthropic{} }, request: "GET /users/1", status: llm.StatusOverloaded, limits: map[string]string{"Retry-After": "1"}},
	{name: "MaxDelay is too short", root: func(f *fixture, cfg *nethttp.Config) { cfg.MaxDelay = time.Second }, before: slices.Repeat([]string{"GET /users/1"}, 3), request: "GET /users/1", status: 429, limits: map[string]string{
		"Ratelimit": `"address";r=97;t=1, "route";r=0;t=20`, "Ratelimit-Policy": quotas, "Retry-After": "19"}},
}

// refusedByGuard reports whether the guard answers the request.
func (c row) refusedByGuard() bool { return !c.own && c.status >= 400 && c.status != 502 }

func TestConformance(t *testing.T) {
	all := slices.Concat(rows, behavior, keyRows())
	if len(all) < 100 {
		t.Errorf("%d rows", len(all))
	}
	for _, http2 := range []bool{false, true} {
		for _, c := range all {
			t.Run(fmt.Sprintf("%s, HTTP2 %v", c.name, http2), func(t *testing.T) {
				want, _ := c.play(t, buildNetHTTP, http2)
				each(t, func(t *testing.T, fw framework) { c.check(t, fw, want, http2) })
			})
		}
	}
}

func (c row) check(t *testing.T, fw framework, want answer, http2 bool) {
	got, keys := c.play(t, fw.build, http2)
	status := c.status
	if s, ok := c.differs[fw.name]; ok {
		status = s
	}
	gatetest.Equal(t, got.Status, status, "status")
	if fw.name == c.unseen {
		if len(got.limits()) > 0 || len(keys) > 0 {
			t.Errorf("the guard decided: %v, keys %v", got.limits(), keys)
		}
		return
	}
	if c.keys != nil {
		wanted := slices.Clone(c.keys)
		if k, ok := c.otherKey[fw.name]; ok {
			wanted[len(wanted)-1] = k
		}
		gatetest.Equal(t, fmt.Sprintf("%q", keys), fmt.Sprintf("%q", wanted), "keys")
	}
	if c.limits != nil && !maps.Equal(got.limits(), c.limits) {
		t.Errorf("limits\n%v, want\n%v", got.limits(), c.limits)
	}
	for _, a := range []*answer{&got, &want} { // it is a moment, which moves between the two
		const reset = "Anthropic-Ratelimit-Requests-Reset"
		if at := a.Header.Get(reset); at != "" {
			gatetest.Worked(t, gatetest.Err(time.Parse(time.RFC3339, at)))
			a.Header.Del(reset)
		}
	}
	switch {
	case c.own:
		if c.unseen != "net/http" && !maps.Equal(got.limits(), want.limits()) {
			t.Errorf("limits\n%v, net/http has\n%v", got.limits(), want.limits())
		}
	case c.refusedByGuard() && fw.json:
		body := fmt.Sprintf("{\"message\":%q}\n", cmp.Or(http.StatusText(status), "Overloaded"))
		if strings.HasPrefix(c.request, "HEAD") {
			body = ""
		}
		gatetest.Equal(t, got.Body, body, "body")
		for _, a := range []*answer{&got, &want} {
			a.Body = ""
			a.Header.Del("Content-Type")
			a.Header.Del("Content-Length")
		}
		fallthrough
	default:
		if !reflect.DeepEqual(got, want) {
			t.Errorf("answer\n%+v, net/http has\n%+v", got, want)
		}
	}
}

// keyRows has two rows or more for each kind of key, under a limit of one request. The second
// request is refused if it has the key of the first, and admitted if it has another.
func keyRows() []row {
	const loopback, loopback6 = "127.0.0.0/8", "::1" // the test is the proxy
	login := func(r *http.Request) string { return r.URL.Query().Get("login") }
	var (
		byProxies   = keyfunc.Must(keyfunc.TrustedProxies(loopback, loopback6))
		by48        = keyfunc.Must(keyfunc.Client{Proxies: []string{loopback, loopback6}, IPv6Bits: 48}.Key())
		byForwarded = keyfunc.Must(keyfunc.Forwarded(loopback, loopback6))
		byHops      = keyfunc.Must(keyfunc.TrustedHops(2))
		byHeader    = keyfunc.Must(keyfunc.TrustedHeader("X-Real-Ip", loopback, loopback6))
		byHMAC      = keyfunc.Must(keyfunc.HMAC([]byte("16 or more bytes"), keyfunc.Must(keyfunc.Header("X-User"))))
	)
	var rows []row
	add := func(name string, key keyfunc.Func, first, second string, status int, headers ...string) {
		c := row{name: name, root: only(one, keyed(key)), before: []string{first}, request: second, status: status}
		switch len(headers) {
		case 1:
			c.headers = headers
		case 2:
			c.with, c.headers = headers[:1], headers[1:]
		}
		rows = append(rows, c)
	}
	const get = "GET /users/1"
	both := func(name string, key keyfunc.Func, status int, first, second string) {
		add(name, key, get, get, status, first, second)
	}

	both("bearer token", keyfunc.BearerToken(), 429, "Authorization: Bearer a", "Authorization: Bearer a")
	both("bearer token, scheme in lower case", keyfunc.BearerToken(), 429, "Authorization: Bearer a", "Authorization: bearer a")
	both("another bearer token", keyfunc.BearerToken(), 200, "Authorization: Bearer a", "Authorization: Bearer b")
	both("no bearer token", keyfunc.BearerToken(), 400, "Authorization: Bearer a", "Authorization: Basic a")
	both("cookie", keyfunc.Must(keyfunc.Cookie("sid")), 429, "Cookie: sid=a", "Cookie: x=y; sid=a")
	both("another cookie", keyfunc.Must(keyfunc.Cookie("sid")), 200, "Cookie: sid=a", "Cookie: sid=b")
	both("cookie twice", keyfunc.Must(keyfunc.Cookie("sid")), 400, "Cookie: sid=a", "Cookie: sid=a; sid=b")
	add("query", keyfunc.Must(keyfunc.Query("k")), "GET /users/1?k=a", "GET /users/2?k=%61", 429)
	add("another query", keyfunc.Must(keyfunc.Query("k")), "GET /users/1?k=a", "GET /users/1?k=b", 200)
	add("malformed query", keyfunc.Must(keyfunc.Query("k")), "GET /users/1?k=a", "GET /users/1?k=a&%zz", 400)
	add("name", keyfunc.Must(keyfunc.Name(login, nil)), "GET /users/1?login=bob", "GET /users/1?login=+BOB", 429)
	add("another name", keyfunc.Must(keyfunc.Name(login, nil)), "GET /users/1?login=bob", "GET /users/1?login=alice", 200)
	both("hashed header", byHMAC, 429, "X-User: a", "X-User: a")
	both("another hashed header", byHMAC, 200, "X-User: a", "X-User: b")
	both("no header to hash", byHMAC, 400, "X-User: a", "X-Other: a")
	both("fallback is another key", keyfunc.Must(keyfunc.Or(keyfunc.Must(keyfunc.Header("X-User")), keyfunc.RemoteIP())), 200, "X-User: a", "X-Other: a")
	both("fallback", keyfunc.Must(keyfunc.Or(keyfunc.Must(keyfunc.Header("X-User")), keyfunc.RemoteIP())), 429, "X-Other: a", "X-Other: b")
	add("method", keyfunc.Must(keyfunc.Join(keyfunc.RemoteIP(), keyfunc.Method())), get, "POST /users body", 201)
	add("HEAD is GET", keyfunc.Must(keyfunc.Join(keyfunc.RemoteIP(), keyfunc.Method())), get, "HEAD /users/1", 429)
	add("one key for all", keyfunc.Must(keyfunc.Static("all")), get, "GET /empty", 429, "X-User: a", "X-User: b")
	both("client behind a proxy", byProxies, 429, "X-Forwarded-For: 198.51.100.1", "X-Forwarded-For: 198.51.100.1")
	both("another client behind the proxy", byProxies, 200, "X-Forwarded-For: 198.51.100.1", "X-Forwarded-For: 198.51.100.2")
	both("client that forges", byProxies, 429, "X-Forwarded-For: 198.51.100.1", "X-Forwarded-For: 6.6.6.6, 198.51.100.1")
	both("same /64", byProxies, 429, "X-Forwarded-For: 2001:db8::1", "X-Forwarded-For: 2001:db8::2")
	both("another /64", byProxies, 200, "X-Forwarded-For: 2001:db8::1", "X-Forwarded-For: 2001:db8:0:1::1")
	both("same /48", by48, 429, "X-Forwarded-For: 2001:db8::1", "X-Forwarded-For: 2001:db8:0:1::1")
	both("Forwarded", byForwarded, 429, "Forwarded: for=198.51.100.1", `Forwarded: for=6.6.6.6, for="198.51.100.1:80";proto=http`)
	both("another Forwarded", byForwarded, 200, "Forwarded: for=198.51.100.1", "Forwarded: for=198.51.100.2")
	both("hops", byHops, 429, "X-Forwarded-For: 198.51.100.1, 192.0.2.1", "X-Forwarded-For: 6.6.6.6, 198.51.100.1, 192.0.2.2")
	both("other hops", byHops, 200, "X-Forwarded-For: 198.51.100.1, 192.0.2.1", "X-Forwarded-For: 198.51.100.2, 192.0.2.1")
	both("proxy's header", byHeader, 429, "X-Real-Ip: 198.51.100.1", "X-Real-Ip: ::ffff:198.51.100.1")
	both("another in the proxy's header", byHeader, 200, "X-Real-Ip: 198.51.100.1", "X-Real-Ip: 198.51.100.2")
	return rows
}

// app is what every framework serves: all routes behind root, and those below /api/ also behind
// inner.
type app struct {
	root, inner *nethttp.Guard // inner may be nil
	routes      []route
}

type route struct {
	method, path string // in the notation of http.ServeMux
	handler      http.HandlerFunc
}

const mount = "/api"

func (a *app) split() (root, mounted []route) {
	for _, r := range a.routes {
		if strings.HasPrefix(r.path, mount+"/") {
			mounted = append(mounted, r)
		} else {
			root = append(root, r)
		}
	}
	return root, mounted
}

// framework builds an app with the framework's usual recovery, logger and error handler.
type framework struct {
	name  string
	build func(*app) http.Handler
	// around serves a handler at /users/{id} behind Admitters, the first of which is outermost, and
	// them inside a middleware.
	around func(outside, http.HandlerFunc, ...nethttp.Admitter) http.Handler
	// json reports whether a refusal is the framework's own JSON.
	json bool
	// clientIP is the framework's own client address with its defaults. configured is that address
	// as the framework documents it for proxies in 10.0.0.0/8, with the middleware to put outside.
	clientIP   func() keyfunc.Func
	configured func() (keyfunc.Func, func(http.Handler) http.Handler)
}

var proxies = []string{"10.0.0.0/8"}

var frameworks = []framework{
	{name: "net/http", build: buildNetHTTP, around: aroundNetHTTP},
	{name: "chi", build: buildChi, around: aroundChi, clientIP: chigate.ClientIP, configured: func() (keyfunc.Func, func(http.Handler) http.Handler) {
		return chigate.ClientIP(), chimiddleware.ClientIPFromXFF(proxies...)
	}},
	{name: "gin", build: buildGin, around: aroundGin, clientIP: func() keyfunc.Func { return gingate.ClientIP(gin.New()) },
		configured: func() (keyfunc.Func, func(http.Handler) http.Handler) {
			engine := gin.New()
			if err := engine.SetTrustedProxies(proxies); err != nil {
				panic(err)
			}
			return gingate.ClientIP(engine), nil
		}},
	{name: "echo", build: buildEcho, around: aroundEcho, json: true, clientIP: func() keyfunc.Func { return echogate.ClientIP(echov4.New()) },
		configured: func() (keyfunc.Func, func(http.Handler) http.Handler) {
			e := echov4.New()
			e.IPExtractor = echov4.ExtractIPFromXFFHeader(echov4.TrustLinkLocal(false), echov4.TrustLoopback(false))
			return echogate.ClientIP(e), nil
		}},
	{name: "echov5", build: buildEchov5, around: aroundEchov5, json: true, clientIP: func() keyfunc.Func { return echov5gate.ClientIP(echo.New()) },
		configured: func() (keyfunc.Func, func(http.Handler) http.Handler) {
			e := echo.New()
			e.IPExtractor = echo.ExtractIPFromXFFHeader(echo.TrustLinkLocal(false), echo.TrustLoopback(false))
			return echov5gate.ClientIP(e), nil
		}},
}

func each(t *testing.T, f func(*testing.T, framework)) {
	for _, fw := range frameworks {
		t.Run(fw.test(), func(t *testing.T) { f(t, fw) })
	}
}

func aroundNetHTTP(out outside, h http.HandlerFunc, all ...nethttp.Admitter) http.Handler {
	var next http.Handler = h
	for _, g := range slices.Backward(all) {
		next = g.Handler(next)
	}
	mux := http.NewServeMux()
	mux.Handle("/users/{id}", next)
	return out(mux)
}

// A router of chi makes a copy of its own, so what stands around its guards is middleware of that
// router.
func aroundChi(out outside, h http.HandlerFunc, all ...nethttp.Admitter) http.Handler {
	r := chi.NewRouter()
	r.Use(out)
	for _, g := range all {
		r.Use(chigate.Middleware(g))
	}
	r.HandleFunc("/users/{id}", h)
	return r
}

func aroundGin(out outside, h http.HandlerFunc, all ...nethttp.Admitter) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	for _, g := range all {
		e.Use(gingate.Middleware(g))
	}
	e.Any("/users/:id", gin.WrapF(h))
	return out(e)
}

func aroundEcho(out outside, h http.HandlerFunc, all ...nethttp.Admitter) http.Handler {
	e := echov4.New()
	for _, g := range all {
		e.Use(echogate.Middleware(g))
	}
	e.Any("/users/:id", echov4.WrapHandler(h))
	return out(e)
}

func aroundEchov5(out outside, h http.HandlerFunc, all ...nethttp.Admitter) http.Handler {
	e := echo.New()
	for _, g := range all {
		e.Use(echov5gate.Middleware(g))
	}
	e.Any("/users/:id", echo.WrapHandler(h))
	return out(e)
}

// http.ServeMux sets the route when it has chosen a handler. Therefore buildNetHTTP wraps each
// handler, and the mux for requests that match none.
func buildNetHTTP(a *app) http.Handler {
	guard := a.root.Handler
	mux := http.NewServeMux()
	for _, r := range a.routes {
		var handler http.Handler = r.handler
		if a.inner != nil && strings.HasPrefix(r.path, mount+"/") {
			handler = a.inner.Handler(handler)
		}
		mux.Handle(r.method+" "+r.path, guard(handler))
	}
	unmatched := guard(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p == http.ErrAbortHandler {
				panic(p)
			} else if p != nil {
				http.Error(w, "Internal Server Error", http.StatusInternalServerError)
			}
		}()
		if _, pattern := mux.Handler(r); pattern == "" {
			unmatched.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func buildChi(a *app) http.Handler {
	r := chi.NewRouter()
	logger := &chimiddleware.DefaultLogFormatter{Logger: log.New(io.Discard, "", 0), NoColor: true}
	r.Use(chimiddleware.RequestLogger(logger), chimiddleware.Recoverer, chimiddleware.GetHead, chigate.Middleware(a.root))
	root, mounted := a.split()
	for _, route := range root {
		r.Method(route.method, route.path, route.handler)
	}
	r.Route(mount, func(r chi.Router) {
		if a.inner != nil {
			r.Use(chigate.Middleware(a.inner))
		}
		for _, route := range mounted {
			r.Method(route.method, strings.TrimPrefix(route.path, mount), route.handler)
		}
	})
	return r
}

// colons converts a pattern to the notation of gin and echo.
func colons(path string) string { return strings.NewReplacer("{", ":", "}", "").Replace(path) }

func buildGin(a *app) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.Use(gin.LoggerWithWriter(io.Discard), gin.RecoveryWithWriter(io.Discard), gingate.Middleware(a.root))
	root, mounted := a.split()
	group := engine.Group(mount)
	if a.inner != nil {
		group.Use(gingate.Middleware(a.inner))
	}
	add := func(routes gin.IRoutes, r route, path string) {
		routes.Handle(r.method, colons(path), gin.WrapF(r.handler))
		if r.method == http.MethodGet {
			routes.HEAD(colons(path), gin.WrapF(r.handler))
		}
	}
	for _, r := range root {
		add(engine, r, r.path)
	}
	for _, r := range mounted {
		add(group, r, strings.TrimPrefix(r.path, mount))
	}
	return engine
}

func buildEcho(a *app) http.Handler {
	e := echov4.New()
	e.Logger.SetOutput(io.Discard)
	e.Use(echov4middleware.RequestLoggerWithConfig(echov4middleware.RequestLoggerConfig{
		LogStatus: true, HandleError: true,
		LogValuesFunc: func(_ echov4.Context, v echov4middleware.RequestLoggerValues) error {
			_, err := fmt.Fprintln(io.Discard, v.Status)
			return err
		},
	}), echov4middleware.Recover(), echogate.Middleware(a.root))
	root, mounted := a.split()
	group := e.Group(mount)
	if a.inner != nil {
		group.Use(echogate.Middleware(a.inner))
	}
	methods := func(r route) []string {
		if r.method == http.MethodGet {
			return []string{r.method, http.MethodHead}
		}
		return []string{r.method}
	}
	for _, r := range root {
		e.Match(methods(r), colons(r.path), echov4.WrapHandler(r.handler))
	}
	for _, r := range mounted {
		group.Match(methods(r), colons(strings.TrimPrefix(r.path, mount)), echov4.WrapHandler(r.handler))
	}
	return e
}

func buildEchov5(a *app) http.Handler {
	e := echo.New()
	e.Use(echomiddleware.RequestLoggerWithConfig(echomiddleware.RequestLoggerConfig{
		LogStatus: true, HandleError: true,
		LogValuesFunc: func(_ *echo.Context, v echomiddleware.RequestLoggerValues) error {
			_, err := fmt.Fprintln(io.Discard, v.Status)
			return err
		},
	}), echomiddleware.Recover(), echov5gate.Middleware(a.root))
	root, mounted := a.split()
	group := e.Group(mount)
	if a.inner != nil {
		group.Use(echov5gate.Middleware(a.inner))
	}
	add := func(add func(string, string, echo.HandlerFunc, ...echo.MiddlewareFunc) echo.RouteInfo, r route, path string) {
		add(r.method, colons(path), echo.WrapHandler(r.handler))
		if r.method == http.MethodGet {
			add(http.MethodHead, colons(path), echo.WrapHandler(r.handler))
		}
	}
	for _, r := range root {
		add(e.Add, r, r.path)
	}
	for _, r := range mounted {
		add(group.Add, r, strings.TrimPrefix(r.path, mount))
	}
	return e
}

// outside is a middleware around the guards.
type outside = func(http.Handler) http.Handler

func same(h http.Handler) http.Handler { return h }

// test returns the name of a framework in the names of tests.
func (fw framework) test() string { return strings.ReplaceAll(fw.name, "/", "-") }

// bare serves a handler behind a guard, or behind none if it is nil.
func (fw framework) bare(g *nethttp.Guard, h http.HandlerFunc) http.Handler {
	if g == nil {
		return fw.around(same, h)
	}
	return fw.around(same, h, g)
}
