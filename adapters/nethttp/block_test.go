package nethttp_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/keyfunc"
)

// login is a handler that answers with the status that the request asks for.
func login(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Query().Get("password") {
	case "right":
		w.WriteHeader(http.StatusOK)
	case "panic":
		panic(http.ErrAbortHandler)
	default:
		w.WriteHeader(http.StatusUnauthorized)
	}
}

func asking(target string) func(*http.Request) {
	return func(r *http.Request) {
		path, query, _ := strings.Cut(target, "?")
		r.URL.Path, r.URL.RawQuery = path, query
	}
}

func bans(t *testing.T, b core.Block) *core.Policy {
	t.Helper()
	return policy(t, core.PolicyConfig{Name: "bans", Algorithm: b})
}

// Three failed logins in ten minutes block the address for an hour, unless one succeeds.
func TestBlockAfterFailures(t *testing.T) {
	c := newClock()
	ban := core.Block{Strikes: 3, Within: 10 * time.Minute, For: time.Hour}
	h := blocking(t, memory(t, c), ban, core.FixedWindow{Limit: 100, Window: 10 * time.Hour}, keyfunc.RemoteIP(), func(b *nethttp.BlockRule) {
		b.Strikes, b.Forget = nethttp.StrikeOn(http.StatusUnauthorized), nethttp.ForgetOn(http.StatusOK)
	})
	wrong, right := asking("/login?password=wrong"), asking("/login?password=right")
	for _, try := range []struct {
		request func(*http.Request)
		status  int
	}{{wrong, 401}, {wrong, 401}, {right, 200}, {wrong, 401}, {wrong, 401}, {wrong, 401}} {
		answers(t, get(h, try.request), try.status)
	}
	r := get(h, right)
	expect(t, r, http.StatusTooManyRequests, map[string]string{
		"Retry-After": "3600", "Cache-Control": "no-store",
		"RateLimit-Policy": `"all";q=100;w=36000`, "RateLimit": `"all";r=94;t=36000`,
	})
	var problem struct {
		Type, Title, Detail string
		Violated            []string `json:"violated-policies"`
	}
	if err := json.Unmarshal([]byte(body(t, r)), &problem); err != nil || !strings.HasSuffix(problem.Type, "#abnormal-usage-detected") ||
		problem.Title != "Abnormal Usage Detected" || !strings.Contains(problem.Detail, "blocked") || len(problem.Violated) != 1 || problem.Violated[0] != "bans" {
		t.Errorf("%+v: %v", problem, err)
	}
	answers(t, get(h, right, func(r *http.Request) { r.RemoteAddr = "192.0.2.99:1" }), http.StatusOK)
	c.advance(time.Hour)
	expect(t, get(h, right), http.StatusOK, map[string]string{
		"RateLimit-Policy": `"all";q=100;w=36000`, "RateLimit": `"all";r=93;t=32400`, // the blocked one spent nothing
	})
}

func TestBlockOfDeniedRequests(t *testing.T) {
	c := newClock()
	ban := core.Block{Strikes: 2, Within: time.Minute, For: time.Minute, Most: time.Hour}
	h := blocking(t, memory(t, c), ban, core.FixedWindow{Limit: 2, Window: time.Second}, keyfunc.RemoteIP(), func(b *nethttp.BlockRule) {
		b.Denied, b.HideRetryAfter = true, true
	})
	right := asking("/login?password=right")
	for _, want := range []struct{ status, wait string }{{"200", ""}, {"200", ""}, {"429", "1"}, {"429", "1"}, {"429", ""}, {"429", ""}} {
		r := get(h, right)
		if r.Status[:3] != want.status || r.Header.Get("Retry-After") != want.wait {
			t.Errorf("status %s, Retry-After %q, want %v", r.Status, r.Header.Get("Retry-After"), want)
		}
	}
	c.advance(time.Minute)
	for range 4 {
		get(h, right)
	}
	c.advance(2*time.Minute - time.Second)
	answers(t, get(h, right), http.StatusTooManyRequests)
	c.advance(time.Second)
	answers(t, get(h, right), http.StatusOK)
}

func TestTrap(t *testing.T) {
	c := newClock()
	ban := core.Block{Strikes: 2, Within: time.Minute, For: time.Hour}
	h := blocking(t, memory(t, c), ban, core.FixedWindow{Limit: 9, Window: time.Hour}, keyfunc.RemoteIP(), func(b *nethttp.BlockRule) {
		b.Trap = func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/wp-") }
	})
	for _, try := range []struct {
		path   string
		status int
	}{{"/", 200}, {"/wp-login.php", 403}, {"/", 200}, {"/wp-admin", 403}, {"/", 429}, {"/wp-admin", 429}} {
		r := get(h, asking(try.path+"?password=right"))
		if r.StatusCode != try.status {
			t.Errorf("%s: %d, want %d", try.path, r.StatusCode, try.status)
		}
		if try.status == http.StatusForbidden && r.Header.Get("Retry-After")+r.Header.Get("RateLimit") != "" {
			t.Errorf("%s: headers %v", try.path, r.Header)
		}
	}
	c.advance(time.Hour)
	if r := get(h); r.Header.Get("RateLimit") != `"all";r=8;t=3600` {
		t.Errorf("what was refused has spent something: %q", r.Header.Get("RateLimit"))
	}
}

// A trap, and a block, come before a rule that finds no key.
func TestBlockBeforeRuleWithoutKey(t *testing.T) {
	ban := core.Block{Strikes: 1, Within: time.Minute, For: time.Hour}
	h := blocking(t, memory(t, newClock()), ban, core.PerSecond(100), keyfunc.Must(keyfunc.Header("User")), func(b *nethttp.BlockRule) {
		b.NoKey, b.Trap = nethttp.NoKeySkip, func(r *http.Request) bool { return r.URL.Path == "/trap" }
	})
	for _, try := range []struct {
		path, addr string
		status     int
	}{{"/", "192.0.2.1:1", 400}, {"/trap", "192.0.2.1:1", 403}, {"/", "192.0.2.1:1", 429}, {"/trap", "@", 403}, {"/", "@", 400}} {
		r := get(h, asking(try.path), func(r *http.Request) { r.RemoteAddr = try.addr })
		if r.StatusCode != try.status {
			t.Errorf("%s of %s: %d, want %d", try.path, try.addr, r.StatusCode, try.status)
		}
	}
}

// block blocks a key under a policy of bans.
func block(t *testing.T, gate *core.Gate, ban *core.Policy, key string) {
	t.Helper()
	gatetest.NoError(t, core.Must(core.NewBlocklist(gate, ban)).Block(t.Context(), core.Must(core.NewKey(key)), time.Hour))
}

// Allow, deny, block, limits: in this order.
func TestAllowAndDeny(t *testing.T) {
	gate := memory(t, newClock())
	of := func(addr string) func(*http.Request) bool {
		return core.Must(keyfunc.InNetworks(keyfunc.RemoteIP(), addr))
	}
	ban := bans(t, core.Block{Strikes: 1, Within: time.Minute, For: time.Hour})
	h := served(t, nethttp.Config{
		Gate: gate, Skip: of("10.0.0.1"), Deny: of("10.0.0.0/24"),
		Blocks: []nethttp.BlockRule{{Policy: ban, Key: keyfunc.RemoteIP(), Denied: true}},
		Rules:  rules(t, core.PolicyConfig{Name: "one", Algorithm: core.FixedWindow{Limit: 1, Window: time.Second}}),
	})
	at := func(addr string) *http.Response {
		return get(h, func(r *http.Request) { r.RemoteAddr = addr + ":1" })
	}
	block(t, gate, ban, "10.0.0.1") // the block of either decides nothing
	block(t, gate, ban, "10.0.0.2")
	for range 2 {
		expect(t, at("10.0.0.1"), http.StatusOK, nil)
		expect(t, at("10.0.0.2"), http.StatusForbidden, map[string]string{"Cache-Control": "no-store"})
	}
	for i, want := range []string{"200 ", "429 1", "429 3600"} { // admitted, denied by the limit, blocked
		r := at("10.0.1.1")
		if got := r.Status[:4] + r.Header.Get("Retry-After"); got != want {
			t.Errorf("request %d: %s, want %s", i, got, want)
		}
	}
}

// A blocked client costs one round trip, and for the next second none.
func TestBlockedClientCostsNoRoundTrip(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	gate := gatetest.Redis(t, s.Client(t), core.Config{Prefix: s.Prefix})
	ban := core.Block{Strikes: 1, Within: time.Minute, For: time.Hour}
	h := blocking(t, gate, ban, core.PerSecond(100), keyfunc.Must(keyfunc.Header("User")), func(*nethttp.BlockRule) {})
	block(t, gate, bans(t, ban), "192.0.2.1")
	before := s.Calls(t, "evalsha", "eval")
	const requests = 100
	for user := range requests { // what else a request is charged does not matter
		r := get(h, func(r *http.Request) { r.Header.Set("User", strconv.Itoa(user)) })
		if r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") == "" {
			t.Fatalf("status %d, %v", r.StatusCode, r.Header)
		}
	}
	// A slow machine may take longer than the second for which a denial is remembered.
	if n := s.Calls(t, "evalsha", "eval") - before; n >= requests/2 {
		t.Errorf("%d round trips for %d requests", n, requests)
	}
}

// blocking returns a handler behind a block by the client's address and a rule by key.
func blocking(t *testing.T, gate *core.Gate, ban core.Block, limit core.Algorithm, key keyfunc.Func, change func(*nethttp.BlockRule)) http.HandlerFunc {
	t.Helper()
	block := nethttp.BlockRule{Policy: bans(t, ban), Key: keyfunc.RemoteIP()}
	change(&block)
	g := guard(t, nethttp.Config{
		Gate: gate, Blocks: []nethttp.BlockRule{block},
		Rules: []nethttp.Rule{{Policy: policy(t, core.PolicyConfig{Name: "all", Algorithm: limit}), Key: key}},
	})
	return g.Handler(http.HandlerFunc(login)).ServeHTTP
}
