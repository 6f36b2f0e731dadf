package nethttp_test

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
)

type tenantName struct{}

// authenticated puts the tenant of a token into the context. Each token is its tenant's name.
func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantName{}, tenant)))
	})
}

func token(tenant string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+tenant) }
}

var byTenant = keyfunc.Must(keyfunc.ContextValue(tenantName{}))

// usageOf returns the body of a response for a usage, and checks its headers.
func usageOf(t *testing.T, r *http.Response) string {
	t.Helper()
	expect(t, r, 200, map[string]string{"Cache-Control": "no-store"})
	gatetest.Equal(t, r.Header.Get("Content-Type"), "application/json", "Content-Type")
	return body(t, r)
}

// Every kind of policy is told in the terms of RateLimit. A shadow and a block are not told.
func TestUsageTellsPolicies(t *testing.T) {
	day := core.Calendar{Limit: 1000, Every: core.PeriodDay, In: time.UTC}
	for name, tt := range map[string]struct {
		cfg  core.PolicyConfig
		cost int64
		want string
	}{
		"untouched":    {core.PolicyConfig{Algorithm: core.PerMinute(60)}, 0, `{"name":"p","q":60,"qu":"requests","w":60,"used":0,"r":60}`},
		"token bucket": {core.PolicyConfig{Algorithm: core.PerMinute(60)}, 2, `{"name":"p","q":60,"qu":"requests","w":60,"used":2,"r":58,"t":1,"reset":2}`},
		"calendar": {core.PolicyConfig{Algorithm: day, Unit: core.UnitMicroDollars}, 1000,
			`{"name":"p","q":1000,"qu":"micro-dollars","w":86400,"used":1000,"r":0,"t":57600,"reset":57600}`},
		"a grant":      {core.PolicyConfig{Algorithm: core.TokenBucket{Burst: 9}, Unit: core.UnitTokens}, 4, `{"name":"p","q":9,"qu":"tokens","used":4,"r":5}`},
		"short window": {core.PolicyConfig{Algorithm: core.FixedWindow{Limit: 5, Window: 250 * time.Millisecond}}, 1, `{"name":"p","q":5,"qu":"requests","w":0.25,"used":1,"r":4,"t":1,"reset":1}`},
		"odd window":   {core.PolicyConfig{Algorithm: core.FixedWindow{Limit: 5, Window: 1500 * time.Millisecond}}, 0, `{"name":"p","q":5,"qu":"requests","w":2,"used":0,"r":5}`},
		"unlimited":    {core.PolicyConfig{Algorithm: core.Unlimited{}}, 1, `{"name":"p","qu":"requests","unlimited":true}`},
		"deny all":     {core.PolicyConfig{Algorithm: core.DenyAll{}}, 0, `{"name":"p","q":0,"qu":"requests","used":0,"r":0}`},
		"shadow":       {core.PolicyConfig{Algorithm: core.PerMinute(60), Shadow: true}, 2, ``},
	} {
		t.Run(name, func(t *testing.T) {
			gate := memory(t, newClock())
			tt.cfg.Name = "p"
			p := policy(t, tt.cfg)
			g := guard(t, nethttp.Config{
				Gate: gate,
				Rules: []nethttp.Rule{{
					Policy: p, Key: byTenant,
					Skip: func(*http.Request) bool { return true },
					Cost: func(*http.Request) int64 { t.Error("Cost is called"); return 1 },
				}},
				Blocks: []nethttp.BlockRule{{Policy: bans(t, core.Block{Strikes: 1, Within: time.Hour, For: time.Hour}), Key: keyfunc.RemoteIP(), Denied: true}},
			})
			key := core.Must(core.NewKey("acme"))
			gatetest.Must(gate.Decide(t.Context(), core.Charge{Policy: p, Key: key, Cost: cmp.Or(tt.cost, core.NoCost)}))(t)
			h := authenticated(g.Usage())
			for range 2 { // reading spends nothing
				got := usageOf(t, get(h, token("acme")))
				gatetest.Equal(t, got, `{"policies":[`+tt.want+`],"caps":[]}`+"\n", "usage")
			}
		})
	}
}

// A shadow policy is not told in a Then either, nor what could only follow it.
func TestUsageHidesShadowsThatFollow(t *testing.T) {
	shadow := policy(t, core.PolicyConfig{Name: "shadow", Algorithm: core.PerHour(1), Shadow: true})
	g := guard(t, nethttp.Config{Gate: memory(t, newClock()), Rules: []nethttp.Rule{{
		Policy: gatetest.Limited(t, "p", core.PerHour(1)), Key: keyfunc.RemoteIP(),
		Then: []*core.Policy{shadow, gatetest.Limited(t, "last", core.PerHour(1))},
	}}})
	want := `{"policies":[{"name":"p","q":1,"qu":"requests","w":3600,"used":0,"r":1}],"caps":[]}` + "\n"
	gatetest.Equal(t, usageOf(t, get(g.Usage())), want, "usage")
}

// A tenant reads its own usage, whatever it puts into its request.
func TestUsageIsOfTheAuthenticatedTenant(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, gate *core.Gate) {
		g := guard(t, nethttp.Config{
			Gate: gate,
			Rules: []nethttp.Rule{{
				Policy: policy(t, core.PolicyConfig{Name: "p", Algorithm: core.TokenBucket{Burst: 10}}), Key: byTenant,
			}},
			Plan: func(r *http.Request) (core.Plan, error) {
				if name, _ := r.Context().Value(tenantName{}).(string); name == "gold" {
					return limited(core.TokenBucket{Burst: 100}), nil
				}
				return nil, nil
			},
		})
		h, own := authenticated(g.Handler(http.HandlerFunc(ok))), authenticated(g.Usage())
		for range 3 {
			get(h, token("gold"))
		}
		get(h, token("acme"))
		spoof := func(r *http.Request) {
			r.URL.RawQuery = "tenant=gold&key=gold"
			for _, name := range []string{"X-Tenant", "X-User", "X-Forwarded-For", "Tenant", "Host"} {
				r.Header.Set(name, "gold")
			}
		}
		for tenant, want := range map[string]string{
			"gold":    `"q":100,"qu":"requests","used":3,"r":97`,
			"acme":    `"q":10,"qu":"requests","used":1,"r":9`,
			"initech": `"q":10,"qu":"requests","used":0,"r":10`,
		} {
			got := usageOf(t, get(own, token(tenant), spoof))
			gatetest.Equal(t, got, `{"policies":[{"name":"p",`+want+`}],"caps":[]}`+"\n", "%s reads", tenant)
		}
	})
}

// A stream is what runs on the client's own keys.
func TestUsageCountsStreams(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, gate *core.Gate) {
		g, _ := chat(t, gate, func(cfg *nethttp.Config) {
			cfg.Slot.Caps = []nethttp.Cap{
				{Name: "all", Key: keyfunc.Must(keyfunc.Static("all")), Limit: 10, Global: true},
				{Name: "running", Key: keyfunc.Must(keyfunc.Static("running")), Limit: 3},
				{Key: keyfunc.Must(keyfunc.Static("nameless")), Limit: 3},
				{Name: "streams", Key: keyfunc.Must(keyfunc.Header("X-User")), Limit: 1},
			}
			cfg.Plan = func(*http.Request) (core.Plan, error) {
				return plan{caps: map[string][3]int64{"streams": {2}}}, nil
			}
			cfg.Slot.Skip = func(r *http.Request) bool { return r.Header.Get("Skip") != "" }
		})
		o := newRunning(t, g)
		o.enter(as("acme", "ann"))
		o.enter(as("acme", "ann"))
		o.enter(as("acme", "bob"))
		o.enter(as("globex", "ann"))
		streams := func(tenant, user string) string {
			_, streams, _ := strings.Cut(usageOf(t, get(g.Usage(), as(tenant, user), func(r *http.Request) { r.Header.Set("Skip", "1") })), `,"caps":`)
			return streams
		}
		const format = `[{"name":"running","q":3,"qu":"concurrent-requests","used":A},` + `{"name":"streams","q":2,"qu":"concurrent-requests","used":B}]}` + "\n"
		for who, want := range map[[2]string][2]string{
			{"acme", "ann"}:   {`3,"r":0`, `2,"r":0`},
			{"acme", "bob"}:   {`3,"r":0`, `1,"r":1`},
			{"acme", "carol"}: {`3,"r":0`, `0,"r":2`},
			{"globex", "ann"}: {`1,"r":2`, `1,"r":1`},
			{"initech", "a"}:  {`0,"r":3`, `0,"r":2`},
		} {
			whole := strings.NewReplacer("A", want[0], "B", want[1]).Replace(format)
			gatetest.Equal(t, streams(who[0], who[1]), whole, "%s", who)
		}
		for range 4 {
			o.leave()
		}
		if got := streams("acme", "ann"); !strings.Contains(got, `"used":0,"r":3`) || !strings.Contains(got, `"used":0,"r":2`) {
			t.Errorf("when all have ended: %s", got)
		}
	})
}

// A Guard of caps alone tells its streams.
func TestUsageOfCapsAlone(t *testing.T) {
	gate := memory(t, newClock())
	g := guard(t, nethttp.Config{Slot: &nethttp.Slot{
		Semaphore: newSemaphore(t, gate, semaphore.Config{}),
		Caps:      []nethttp.Cap{{Name: "streams", Key: keyfunc.RemoteIP(), Limit: 2}},
	}})
	const want = `{"policies":[],"caps":[{"name":"streams","q":2,"qu":"concurrent-requests","used":0,"r":2}]}` + "\n"
	gatetest.Equal(t, usageOf(t, get(g.Usage())), want, "got")
}

func TestUsageMethods(t *testing.T) {
	g, _ := chat(t, memory(t, newClock()))
	ask := func(method string) *http.Response {
		r, w := httptest.NewRequest(method, "/usage", nil), httptest.NewRecorder()
		as("acme", "ann")(r)
		g.Usage().ServeHTTP(w, r)
		return w.Result()
	}
	whole, head := ask(http.MethodGet), ask(http.MethodHead)
	if got := body(t, head); head.StatusCode != 200 || got != "" {
		t.Errorf("HEAD: status %d, %q", head.StatusCode, got)
	}
	for name := range whole.Header {
		gatetest.Equal(t, head.Header.Get(name), whole.Header.Get(name), "HEAD: %s", name)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		if r := ask(method); r.StatusCode != 405 || r.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: status %d, Allow %q", method, r.StatusCode, r.Header.Get("Allow"))
		}
	}
}

// A refusal is that of the Guard, and says neither why nor whose key it is.
func TestUsageRefusals(t *testing.T) {
	secret := errors.New("secret")
	hourly := core.PolicyConfig{Name: "p", Algorithm: core.PerHour(9)}
	for name, tt := range map[string]struct {
		gate   *core.Gate // nil: in memory
		change func(*nethttp.Config)
		tenant string
		status int
		header map[string]string
	}{
		"no key":                     {nil, nil, "", 400, nil},
		"no key, and the rule skips": {nil, func(c *nethttp.Config) { c.Rules[0].NoKey = nethttp.NoKeySkip }, "", 200, nil},
		"no scope":                   {nil, func(c *nethttp.Config) { c.Scope = keyfunc.Must(keyfunc.Header("X-Org")) }, "acme", 400, nil},
		"no key of a cap": {nil, func(c *nethttp.Config) {
			c.Slot = &nethttp.Slot{Semaphore: newSemaphore(t, c.Gate, semaphore.Config{}), Caps: []nethttp.Cap{{Key: keyfunc.Must(keyfunc.Header("X-User")), Limit: 1}}}
		}, "acme", 400, nil},
		"the key fails": {nil, func(c *nethttp.Config) {
			c.Rules[0].Key = func(*http.Request) (string, error) { return "", secret }
		}, "acme", 500, nil},
		"the plan fails": {nil, func(c *nethttp.Config) {
			c.Plan = func(*http.Request) (core.Plan, error) { return nil, secret }
		}, "acme", 500, nil},
		"the limit is not valid": {nil, func(c *nethttp.Config) {
			c.Plan = func(*http.Request) (core.Plan, error) { return limited(core.PerMinute(-1)), nil }
		}, "acme", 500, nil},
		"Redis is down": {dead(t), nil, "acme", 503, map[string]string{"Retry-After": "1"}},
		"Redis is down, and the policy is Open": {dead(t), func(c *nethttp.Config) {
			c.Rules[0].Policy = policy(t, core.PolicyConfig{Name: "p", Algorithm: core.PerHour(9), OnFailure: core.FailOpen})
		}, "acme", 503, map[string]string{"Retry-After": "1"}},
		"Redis is down, and only caps need it": {dead(t), func(c *nethttp.Config) {
			c.Rules = nil
			c.Slot = &nethttp.Slot{Semaphore: newSemaphore(t, c.Gate, semaphore.Config{}), Caps: []nethttp.Cap{{Name: "c", Key: byTenant, Limit: 1}}}
		}, "acme", 503, map[string]string{"Retry-After": "1"}},
		"Redis is down, in another Dialect": {dead(t), func(c *nethttp.Config) { c.Dialect = own{} }, "acme", 529, map[string]string{"Retry-After": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := nethttp.Config{Gate: tt.gate, Rules: []nethttp.Rule{{Policy: policy(t, hourly), Key: byTenant}}}
			if cfg.Gate == nil {
				cfg.Gate = memory(t, newClock())
			}
			if tt.change != nil {
				tt.change(&cfg)
			}
			r := get(authenticated(guard(t, cfg).Usage()), token(tt.tenant))
			want := map[string]string{"Cache-Control": "no-store"}
			for name, value := range tt.header {
				want[name] = value
			}
			expect(t, r, tt.status, want)
			if text := body(t, r); strings.Contains(text, "secret") || strings.Contains(text, "acme") || strings.Contains(text, "127.0.0.1") {
				t.Errorf("the body tells %s", text)
			}
		})
	}
	t.Run("zero Guard", func(t *testing.T) {
		answers(t, get(new(nethttp.Guard).Usage()), 500)
	})
	t.Run("Config.Refuse", func(t *testing.T) {
		g := guard(t, nethttp.Config{
			Gate: memory(t, newClock()), Rules: []nethttp.Rule{{Policy: policy(t, hourly), Key: byTenant}},
			Refuse: func(w http.ResponseWriter, _ *http.Request, a *nethttp.Admission) {
				http.Error(w, "own "+a.StatusText(), a.Status())
			},
		})
		if r := get(authenticated(g.Usage())); r.StatusCode != 400 || body(t, r) != "own Bad Request\n" {
			t.Errorf("status %d", r.StatusCode)
		}
	})
}
