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
	h := guard(t, nethttp.Config{
		Gate: memory(t, c),
		Blocks: []nethttp.BlockRule{{
			Policy: bans(t, core.Block{Strikes: 3, Within: 10 * time.Minute, For: time.Hour}), Key: keyfunc.RemoteIP(),
			Strikes: nethttp.StrikeOn(http.StatusUnauthorized), Forget: nethttp.ForgetOn(http.StatusOK),
		}},
		Rules: []nethttp.Rule{{
			Policy: policy(t, core.PolicyConfig{Name: "all", Algorithm: core.FixedWindow{Limit: 100, Window: 10 * time.Hour}}), Key: keyfunc.RemoteIP(),
		}},
	}).Handler(http.HandlerFunc(login))
	wrong, right := asking("/login?password=wrong"), asking("/login?password=right")
	for _, try := range []struct {
		request func(*http.Request)
		status  int
	}{{wrong, 401}, {wrong, 401}, {right, 200}, {wrong, 401}, {wrong, 401}, {wrong, 401}} {
		if r := get(h, try.request); r.StatusCode != try.status {
			t.Fatalf("status %d, want %d", r.StatusCode, try.status)
		}
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
	other := get(h, right, func(r *http.Request) { r.RemoteAddr = "192.0.2.99:1" })
	if other.StatusCode != http.StatusOK {
		t.Errorf("another client: %d", other.StatusCode)
	}
	c.advance(time.Hour)
	expect(t, get(h, right), http.StatusOK, map[string]string{
		"RateLimit-Policy": `"all";q=100;w=36000`, "RateLimit": `"all";r=93;t=32400`, // the blocked one spent nothing
	})
}

func TestBlockOfDeniedRequests(t *testing.T) {
	c := newClock()
	h := guard(t, nethttp.Config{
		Gate: memory(t, c),
		Blocks: []nethttp.BlockRule{{
			Policy: bans(t, core.Block{Strikes: 2, Within: time.Minute, For: time.Minute, Most: time.Hour}), Key: keyfunc.RemoteIP(),
			Denied: true, HideRetryAfter: true,
		}},
		Rules: []nethttp.Rule{{
			Policy: policy(t, core.PolicyConfig{Name: "all", Algorithm: core.FixedWindow{Limit: 2, Window: time.Second}}), Key: keyfunc.RemoteIP(),
		}},
		Dialect: nethttp.Legacy{},
	}).Handler(http.HandlerFunc(ok))
	for _, want := range []struct{ status, wait string }{{"200", ""}, {"200", ""}, {"429", "1"}, {"429", "1"}, {"429", ""}, {"429", ""}} {
		r := get(h)
		if r.Status[:3] != want.status || r.Header.Get("Retry-After") != want.wait {
			t.Errorf("status %s, Retry-After %q, want %v", r.Status, r.Header.Get("Retry-After"), want)
		}
	}
	c.advance(time.Minute)
	for range 4 {
		get(h)
	}
	c.advance(2*time.Minute - time.Second)
	if r := get(h); r.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the second block ended early: %d", r.StatusCode)
	}
	c.advance(time.Second)
	if r := get(h); r.StatusCode != http.StatusOK {
		t.Errorf("the second block did not end: %d", r.StatusCode)
	}
}

func TestTrap(t *testing.T) {
	c := newClock()
	h := guard(t, nethttp.Config{
		Gate: memory(t, c),
		Blocks: []nethttp.BlockRule{{
			Policy: bans(t, core.Block{Strikes: 2, Within: time.Minute, For: time.Hour}), Key: keyfunc.RemoteIP(),
			Trap: func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/wp-") },
		}},
		Rules: []nethttp.Rule{{
			Policy: policy(t, core.PolicyConfig{Name: "all", Algorithm: core.FixedWindow{Limit: 9, Window: time.Hour}}), Key: keyfunc.RemoteIP(),
		}},
	}).Handler(http.HandlerFunc(ok))
	for _, try := range []struct {
		path   string
		status int
	}{{"/", 200}, {"/wp-login.php", 403}, {"/", 200}, {"/wp-admin", 403}, {"/", 429}, {"/wp-admin", 429}} {
		r := get(h, asking(try.path))
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
	h := guard(t, nethttp.Config{
		Gate: memory(t, newClock()),
		Blocks: []nethttp.BlockRule{{
			Policy: bans(t, core.Block{Strikes: 1, Within: time.Minute, For: time.Hour}), Key: keyfunc.RemoteIP(), NoKey: nethttp.NoKeySkip,
			Trap: func(r *http.Request) bool { return r.URL.Path == "/trap" },
		}},
		Rules: []nethttp.Rule{{
			Policy: policy(t, core.PolicyConfig{Name: "all", Algorithm: core.PerSecond(100)}), Key: keyfunc.Must(keyfunc.Header("User")),
		}},
	}).Handler(http.HandlerFunc(ok))
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

// Allow, deny, block, limits: in this order.
func TestAllowAndDeny(t *testing.T) {
	c := newClock()
	gate := memory(t, c)
	of := func(addr string) func(*http.Request) bool {
		in, err := keyfunc.InNetworks(keyfunc.RemoteIP(), addr)
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	ban := bans(t, core.Block{Strikes: 1, Within: time.Minute, For: time.Hour})
	h := guard(t, nethttp.Config{
		Gate: gate, Skip: of("10.0.0.1"), Deny: of("10.0.0.0/24"),
		Blocks: []nethttp.BlockRule{{Policy: ban, Key: keyfunc.RemoteIP(), Denied: true}},
		Rules: []nethttp.Rule{{
			Policy: policy(t, core.PolicyConfig{Name: "one", Algorithm: core.FixedWindow{Limit: 1, Window: time.Second}}), Key: keyfunc.RemoteIP(),
		}},
	}).Handler(http.HandlerFunc(ok))
	at := func(addr string) *http.Response {
		return get(h, func(r *http.Request) { r.RemoteAddr = addr + ":1" })
	}
	for _, addr := range []string{"10.0.0.1", "10.0.0.2"} { // the block of either decides nothing
		key, err := core.NewKey(addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := core.Must(core.NewBlocklist(gate, ban)).Block(t.Context(), key, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
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

func TestBlockRuleFaults(t *testing.T) {
	_, err := nethttp.NewGuard(nethttp.Config{
		Gate: memory(t, newClock()),
		Blocks: []nethttp.BlockRule{
			{},
			{Policy: policy(t, core.PolicyConfig{Name: "p", Algorithm: core.PerSecond(1)}), NoKey: 7},
			{Policy: policy(t, core.PolicyConfig{Name: "p", Algorithm: core.Block{Strikes: 1, Within: 1e9, For: 1e9}}), Forget: nethttp.ForgetOn(200)},
		},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"Blocks[0].Policy is missing", "Blocks[0].Key is nil", "Blocks[1].Policy has the algorithm core.TokenBucket",
		"Blocks[1].NoKey is 7", `Blocks[2].Policy is named "p"`, "Blocks[2] forgets strikes",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%v", want, err)
		}
	}
}

// A blocked client costs one round trip, and for the next second none.
func TestBlockedClientCostsNoRoundTrip(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	gate, err := core.NewRedis(s.Client(t), core.Config{Prefix: s.Prefix, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = gate.Close(t.Context()) })
	ban := bans(t, core.Block{Strikes: 1, Within: time.Minute, For: time.Hour})
	g := guard(t, nethttp.Config{
		Gate:   gate,
		Blocks: []nethttp.BlockRule{{Policy: ban, Key: keyfunc.RemoteIP()}},
		Rules: []nethttp.Rule{{
			Policy: policy(t, core.PolicyConfig{Name: "all", Algorithm: core.PerSecond(100)}), Key: keyfunc.Must(keyfunc.Header("User")),
		}},
	})
	key, err := core.NewKey("192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	if err := core.Must(core.NewBlocklist(gate, ban)).Block(t.Context(), key, time.Hour); err != nil {
		t.Fatal(err)
	}
	h := g.Handler(http.HandlerFunc(ok))
	user := 0
	other := func(r *http.Request) { // what else a request is charged does not matter
		user++
		r.Header.Set("User", strconv.Itoa(user))
	}
	before := s.Calls(t, "evalsha", "eval")
	remembered := int64(0)
	for range 100 {
		if r := get(h, other); r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") == "" {
			t.Fatalf("status %d, %v", r.StatusCode, r.Header)
		}
		remembered++
	}
	// A slow machine may take longer than the second for which a denial is remembered.
	if n := s.Calls(t, "evalsha", "eval") - before; n >= remembered/2 {
		t.Errorf("%d round trips for %d requests", n, remembered)
	}
}
