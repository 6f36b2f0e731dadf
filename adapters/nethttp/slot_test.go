package nethttp_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/keyfunc"
)

// generous is the longest wait of a test.
const generous = 30 * time.Second

func eachGate(t *testing.T, f func(t *testing.T, gate *core.Gate)) {
	t.Run("memory", func(t *testing.T) { f(t, gatetest.Memory(t, core.Config{})) })
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		f(t, gatetest.Redis(t, s.Client(t), core.Config{Prefix: s.Prefix}))
	})
}

func newSemaphore(t *testing.T, gate *core.Gate, cfg semaphore.Config) *semaphore.Semaphore {
	t.Helper()
	cfg.Name = "streams"
	return core.Must(semaphore.New(gate, cfg))
}

// chat is a guard of 10 requests that never refill, two streams a user and three a tenant.
func chat(t *testing.T, gate *core.Gate, change ...func(*nethttp.Config)) (*nethttp.Guard, *semaphore.Semaphore) {
	t.Helper()
	s := newSemaphore(t, gate, semaphore.Config{MaxWaiters: 1})
	cfg := nethttp.Config{
		Gate: gate, Scope: keyfunc.Must(keyfunc.Header("X-Tenant")),
		Rules: []nethttp.Rule{{Policy: policy(t, core.PolicyConfig{Name: "requests", Algorithm: core.TokenBucket{Burst: 10}}), Key: keyfunc.Must(keyfunc.Header("X-User"))}},
		Slot: &nethttp.Slot{Semaphore: s, Caps: []nethttp.Cap{
			{Name: "tenant", Key: keyfunc.Must(keyfunc.Static("all")), Limit: 3, Global: true},
			{Name: "streams", Key: keyfunc.Must(keyfunc.Header("X-User")), Limit: 2},
		}},
	}
	for _, f := range change {
		f(&cfg)
	}
	return guard(t, cfg), s
}

func as(tenant, user string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("X-Tenant", tenant); r.Header.Set("X-User", user) }
}

// running is a set of requests that run until the test ends them.
type running struct {
	t       *testing.T
	handler http.Handler
	end     chan struct{}
	entered chan context.Context
	answers chan *http.Response
}

func newRunning(t *testing.T, g *nethttp.Guard) *running {
	o := &running{t: t, end: make(chan struct{}), entered: make(chan context.Context), answers: make(chan *http.Response, 100)}
	o.handler = g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		o.entered <- r.Context()
		<-o.end
	}))
	return o
}

// request starts a request and returns immediately.
func (o *running) request(change ...func(*http.Request)) {
	go func() { o.answers <- get(o.handler, change...) }()
}

// enter starts a request that must be admitted, and returns its context.
func (o *running) enter(change ...func(*http.Request)) context.Context {
	o.t.Helper()
	o.request(change...)
	select {
	case ctx := <-o.entered:
		return ctx
	case r := <-o.answers:
		o.t.Fatalf("status %d: %s", r.StatusCode, body(o.t, r))
	case <-time.After(generous):
		o.t.Fatal("neither admitted nor refused")
	}
	return nil
}

// refused starts a request that must be refused, and returns the response.
func (o *running) refused(change ...func(*http.Request)) *http.Response {
	o.t.Helper()
	o.request(change...)
	return o.answer()
}

// answer waits for the next response.
func (o *running) answer() *http.Response {
	o.t.Helper()
	select {
	case r := <-o.answers:
		return r
	case <-o.entered:
		o.t.Fatal("admitted")
	case <-time.After(generous):
		o.t.Fatal("neither admitted nor refused")
	}
	return nil
}

// leave ends one running request.
func (o *running) leave() {
	o.t.Helper()
	o.end <- struct{}{}
	gatetest.Equal(o.t, o.answer().StatusCode, 200, "status")
}

func tenantKey(t *testing.T, tenant string) core.Key {
	t.Helper()
	scope := gatetest.Must(keyfunc.Must(keyfunc.Header("X-Tenant"))(&http.Request{Header: http.Header{"X-Tenant": {tenant}}}))(t)
	return core.Must(core.NewKey(scope))
}

// holders waits until the tenant has this many holders and no waiters. A waiter that gives up
// leaves the queue in the background.
func holders(t *testing.T, s *semaphore.Semaphore, tenant string, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), generous)
	defer cancel()
	for {
		got, waiting, err := s.Holders(ctx, tenantKey(t, tenant))
		if err == nil && len(got) == want && waiting == 0 {
			return
		}
		if err != nil || ctx.Err() != nil {
			t.Errorf("%d holders, %d waiters, want %d and none; %v", len(got), waiting, want, err)
			return
		}
	}
}

const chatPolicies = `"requests";q=10, "tenant";q=3;qu="concurrent-requests", "streams";q=2;qu="concurrent-requests"`

func TestConcurrency(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, gate *core.Gate) {
		g, s := chat(t, gate)
		o := newRunning(t, g)
		o.enter(as("acme", "ann"))
		o.enter(as("acme", "ann"))

		r := o.refused(as("acme", "ann"))
		after := r.Header.Get("Retry-After")
		if n, err := strconv.Atoi(after); err != nil || n < 1 || n > 37 {
			t.Errorf("Retry-After %q", after)
		}
		// A request without a slot spends nothing.
		expect(t, r, 429, map[string]string{
			"RateLimit": `"requests";r=8`, "RateLimit-Policy": chatPolicies, "Retry-After": after, "Cache-Control": "no-store",
		})
		want := `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded",` +
			`"status":429,"detail":"All 2 concurrent requests of policy \"streams\" are in use.","violated-policies":["streams"],"retryAfter":` + after + `}` + "\n"
		gatetest.Equal(t, body(t, r), want, "body")

		o.enter(as("acme", "bob"))
		r = o.refused(as("acme", "bob"))
		if s := body(t, r); r.StatusCode != 503 || r.Header.Get("Retry-After") == "" || !strings.Contains(s, `"violated-policies":["tenant"]`) {
			t.Errorf("no room in the tenant: %d, %s", r.StatusCode, s)
		}
		o.enter(as("other", "ann"))
		holders(t, s, "acme", 3)
		for range 4 {
			o.leave()
		}
		holders(t, s, "acme", 0)

		// A request that a rule denies holds no slot.
		for range 8 {
			o.enter(as("acme", "ann"))
			o.leave()
		}
		r = o.refused(as("acme", "ann"))
		expect(t, r, 429, map[string]string{"RateLimit": `"requests";r=0`, "RateLimit-Policy": chatPolicies, "Cache-Control": "no-store"})
		holders(t, s, "acme", 0)
	})
}

// handlerOnce returns the handler for one request that ends when it is admitted.
func (o *running) handlerOnce() http.Handler {
	go func() {
		<-o.entered
		o.end <- struct{}{}
	}()
	return o.handler
}

func TestConcurrencySkips(t *testing.T) {
	gate := memory(t, newClock())
	g, s := chat(t, gate, func(cfg *nethttp.Config) {
		cfg.Slot.Skip = func(r *http.Request) bool { return r.Header.Get("X-User") == "root" }
	})
	h := g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if nethttp.LeaseFromContext(r.Context()) != nil {
			t.Error("it holds a slot")
		}
		holders(t, s, "acme", 0)
	}))
	if r := get(h, as("acme", "root")); r.StatusCode != 200 || r.Header.Get("RateLimit-Policy") != `"requests";q=10` {
		t.Errorf("%d, %v", r.StatusCode, r.Header)
	}
	if caps, err := g.Caps(forged(as("acme", "root"))); caps != nil || err != nil {
		t.Errorf("it has %+v, %v", caps, err)
	}
	answers(t, get(h, func(r *http.Request) { r.Header.Set("X-Tenant", "acme") }), 400) // without a user
	if nethttp.LeaseFromContext(t.Context()) != nil {
		t.Error("a lease in a context without one")
	}
}

func TestConcurrencyDuringOutage(t *testing.T) {
	for mode, want := range map[core.FailureMode][]int{
		core.FailLocal: {200, 200, 429}, core.FailOpen: {200, 200, 200}, core.FailClosed: {503, 503, 503},
	} {
		t.Run(mode.String(), func(t *testing.T) {
			o := newRunning(t, guard(t, nethttp.Config{Slot: &nethttp.Slot{
				Semaphore: newSemaphore(t, dead(t), semaphore.Config{OnFailure: mode}),
				Caps:      []nethttp.Cap{{Name: "streams", Key: keyfunc.RemoteIP(), Limit: 2}},
			}}))
			running := 0
			for i, status := range want {
				if status == 200 {
					o.enter()
					running++
				} else if r := o.refused(); r.StatusCode != status || r.Header.Get("Retry-After") == "" {
					t.Errorf("request %d: status %d, want %d; %v", i, r.StatusCode, status, r.Header)
				}
			}
			for range running {
				o.leave()
			}
		})
	}
}

// A panic in OnQueue or in Observe holds no slot and spends nothing.
func TestPanicsOfHooksSpendNothing(t *testing.T) {
	for name, c := range map[string]struct {
		before int // requests that run meanwhile
		change func(*nethttp.Config)
	}{
		"OnQueue": {2, func(cfg *nethttp.Config) {
			cfg.Slot.MaxWait = generous
			cfg.Slot.OnQueue = func(*http.Request, int) { panic(http.ErrAbortHandler) }
		}},
		"Observe":          {0, func(*nethttp.Config) {}},
		"Observe, delayed": {0, func(cfg *nethttp.Config) { cfg.MaxDelay = time.Second }},
	} {
		t.Run(name, func(t *testing.T) {
			boom := false
			g, s := chat(t, memory(t, newClock()), func(cfg *nethttp.Config) {
				c.change(cfg)
				cfg.Observe = observed(func(*nethttp.Admission) {
					if boom {
						panic(http.ErrAbortHandler)
					}
				})
			})
			o := newRunning(t, g)
			for range c.before {
				o.enter(as("acme", "ann"))
			}
			boom = true
			func() {
				defer func() {
					gatetest.Equal(t, recover(), any(http.ErrAbortHandler), "the panic is gone")
				}()
				get(o.handler, as("acme", "ann"))
			}()
			boom = false
			for range c.before {
				o.leave()
			}
			holders(t, s, "acme", 0)
			want := fmt.Sprintf(`"requests";r=%d`, 9-c.before)
			gatetest.Equal(t, get(o.handlerOnce(), as("acme", "ann")).Header.Get("RateLimit"), want, "RateLimit")
		})
	}
}

// A running request reports its method, its route and whose rules it counts under, and no secret.
func TestHoldersAreDescribed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 40)
	user := nethttp.Rule{Policy: policy(t, core.PolicyConfig{Name: "user", Algorithm: core.PerHour(100)}),
		Key: func(*http.Request) (string, error) { return "ann", nil }}
	token := nethttp.Rule{Policy: policy(t, core.PolicyConfig{Name: "token", Algorithm: core.PerHour(100)}),
		Key: keyfunc.Must(keyfunc.Header("X-Token"))}
	many := []nethttp.Rule{user}
	for i := range 7 {
		many = append(many, nethttp.Rule{
			Policy: policy(t, core.PolicyConfig{Name: "p" + strconv.Itoa(i), Algorithm: core.PerHour(100)}),
			Key:    func(*http.Request) (string, error) { return long + strconv.Itoa(i), nil },
		})
	}
	route := func(r *http.Request) { r.Pattern = "POST /v1/chat/{id}"; r.URL.Path = "/v1/chat/secret" }
	for _, tt := range []struct {
		name   string
		rules  []nethttp.Rule
		meta   func(*http.Request) map[string]string
		change func(*http.Request)
		check  func(meta map[string]string) bool
	}{
		{"a rule of another key", []nethttp.Rule{user}, nil, route, func(m map[string]string) bool {
			return len(m) == 3 && m["method"] == "GET" && m["route"] == "/v1/chat/{id}" && strings.HasSuffix(m["key"], "/ann")
		}},
		{"a hashed key", []nethttp.Rule{token}, nil, func(r *http.Request) { r.Header.Set("X-Token", "secret") },
			func(m map[string]string) bool { return m["route"] == "unmatched" && len(m["key"]) > 10 }},
		{"many keys", many, nil, route, func(m map[string]string) bool { return len(m["key"]) < 300 && strings.Contains(m["key"], "/ann") }},
		{"a method that is none", []nethttp.Rule{user}, nil, func(r *http.Request) { r.Method = "SECRET" },
			func(m map[string]string) bool { return m["method"] == "OTHER" }},
		{"nothing", []nethttp.Rule{user}, func(*http.Request) map[string]string { return nil }, route,
			func(m map[string]string) bool { return len(m) == 0 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			gate := core.Must(core.NewMemory(core.Config{}))
			g, s := chat(t, gate, func(cfg *nethttp.Config) { cfg.Rules, cfg.Slot.Meta = tt.rules, tt.meta })
			o := newRunning(t, g)
			o.enter(as("acme", "bob"), tt.change)
			held, _, err := s.Holders(t.Context(), tenantKey(t, "acme"))
			if err != nil || len(held) != 1 {
				t.Fatalf("%+v, %v", held, err)
			}
			meta := held[0].Meta
			if !tt.check(meta) || strings.Contains(strings.ToLower(meta["key"]+meta["route"]+meta["method"]), "secret") {
				t.Errorf("%q", meta)
			}
			o.leave()
		})
	}
}
