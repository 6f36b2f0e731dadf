package nethttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/plans"
)

// counted is a guard of 10 requests that never refill.
func counted(t *testing.T, change ...func(*nethttp.Config)) *nethttp.Guard {
	t.Helper()
	cfg := nethttp.Config{
		Gate:  gatetest.Memory(t, core.Config{}),
		Rules: rules(t, core.PolicyConfig{Name: "p", Algorithm: core.TokenBucket{Burst: 10}}),
	}
	for _, f := range change {
		f(&cfg)
	}
	return guard(t, cfg)
}

// adapters_test.TestConformance skips a preflight.
func TestPreflights(t *testing.T) {
	for _, c := range []struct {
		name, method, origin, asked string
		want                        bool
	}{
		{"a preflight", http.MethodOptions, "https://example.com", "DELETE", true},
		{"OPTIONS alone", http.MethodOptions, "", "", false},
		{"no origin", http.MethodOptions, "", "DELETE", false},
		{"what it asks for", http.MethodDelete, "https://example.com", "DELETE", false},
	} {
		r := forged(func(r *http.Request) {
			r.Method = c.method
			r.Header.Set("Origin", c.origin)
			r.Header.Set("Access-Control-Request-Method", c.asked)
		})
		gatetest.Equal(t, nethttp.IsPreflight(r), c.want, "%s", c.name)
	}
}

// A Guard decides every request that it is given. Mounted twice, with another between, it charges
// twice and takes two slots.
func TestMountedTwice(t *testing.T) {
	gate := memory(t, newClock())
	g, s := chat(t, gate)
	other := counted(t)
	h := g.Handler(other.Handler(g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		holders(t, s, "acme", 2)
		if a := nethttp.AdmissionFromContext(r.Context()); a == nil || a.Decision().At(0).Policy.Name() != "requests" {
			t.Errorf("the admission is %+v", a)
		}
	}))))
	for _, want := range []string{`"requests";r=9 | "p";r=9 | "requests";r=8`, `"requests";r=7 | "p";r=8 | "requests";r=6`} {
		r := get(h, as("acme", "ann"))
		gatetest.Equal(t, strings.Join(r.Header.Values("RateLimit"), " | "), want, "RateLimit")
	}
	holders(t, s, "acme", 0)
}

// own is a Dialect that nethttp does not have.
type own struct{ nethttp.None }

func (own) Status(status int) int {
	if status == http.StatusServiceUnavailable {
		return 529
	}
	return status
}

func (own) WriteRefusal(w http.ResponseWriter, _ *http.Request, a *nethttp.Admission) {
	w.Header().Set("Content-Type", "text/x-own")
	w.WriteHeader(a.Status())
	fmt.Fprintf(w, "%s: %s\n", a.StatusText(), a.Detail())
}

func TestRefusalForms(t *testing.T) {
	noKey := func(*http.Request) (string, error) { return "", keyfunc.ErrNoKey }
	for _, c := range []struct {
		name    string
		dialect nethttp.Dialect
		limit   core.Algorithm
		key     keyfunc.Func
		status  int
		kind    string
		body    string
	}{
		{"plain", nethttp.Draft11{Refusal: nethttp.Refusal{PlainText: true}}, core.DenyAll{}, keyfunc.RemoteIP(), 403, "text/plain; charset=utf-8",
			"No request is allowed by policy \"p\".\n"},
		{"plain, no key", nethttp.Draft11{Refusal: nethttp.Refusal{PlainText: true}}, core.DenyAll{}, noKey, 400, "text/plain; charset=utf-8",
			"The request lacks the key of its rate limit.\n"},
		{"about:blank", nethttp.Draft11{Refusal: nethttp.Refusal{ProblemBase: nethttp.AboutBlank}}, core.DenyAll{}, keyfunc.RemoteIP(), 403, "application/problem+json",
			`{"type":"about:blank","title":"Forbidden","status":403,"detail":"No request is allowed by policy \"p\".","violated-policies":["p"]}` + "\n"},
		{"a Dialect of its own", own{}, core.DenyAll{}, keyfunc.RemoteIP(), 403, "text/x-own",
			"Forbidden: No request is allowed by policy \"p\".\n"},
		{"a Dialect of its own, a failing key", own{}, core.DenyAll{}, func(*http.Request) (string, error) { return "", io.ErrUnexpectedEOF }, 500, "text/x-own",
			"Internal Server Error: \n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := counted(t, func(cfg *nethttp.Config) {
				cfg.Dialect = c.dialect
				cfg.Rules[0].Policy = policy(t, core.PolicyConfig{Name: "p", Algorithm: c.limit})
				cfg.Rules[0].Key = c.key
			})
			r := get(g.Handler(http.HandlerFunc(ok)))
			if got := body(t, r); r.StatusCode != c.status || got != c.body || r.Header.Get("Content-Type") != c.kind {
				t.Errorf("%d, %s: %s", r.StatusCode, r.Header.Get("Content-Type"), got)
			}
			head := get(g.Handler(http.HandlerFunc(ok)), func(r *http.Request) { r.Method = http.MethodHead })
			if s := body(t, head); c.name == "about:blank" && (s != "" || head.StatusCode != 403 || head.Header.Get("Content-Length") == "0") {
				t.Errorf("HEAD: %d %q %v", head.StatusCode, s, head.Header)
			}
		})
	}
}

// Requests of background work let all others go first, for their rules and for their slot, and their
// handlers do background work.
func TestBackground(t *testing.T) {
	tests := map[string]func(t *testing.T, cfg *nethttp.Config){
		"MaxDelay": func(t *testing.T, cfg *nethttp.Config) {
			cfg.MaxDelay = time.Hour
			cfg.Rules = rules(t, core.PolicyConfig{Name: "p", Algorithm: core.PerSecond(1)})
		},
		"Slot.MaxWait": func(t *testing.T, cfg *nethttp.Config) {
			cfg.Slot = &nethttp.Slot{
				Semaphore: newSemaphore(t, cfg.Gate, semaphore.Config{}), MaxWait: time.Hour,
				Caps: []nethttp.Cap{{Key: keyfunc.RemoteIP(), Limit: 1}},
			}
		},
	}
	for name, limit := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := nethttp.Config{
					Gate:       gatetest.Memory(t, core.Config{}),
					Background: func(r *http.Request) bool { return r.URL.Path == "/bulk" },
				}
				limit(t, &cfg)
				var mu sync.Mutex
				var order []string
				h := guard(t, cfg).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					mu.Lock()
					order = append(order, r.URL.Path)
					mu.Unlock()
					back := core.IsBackground(r.Context())
					gatetest.Equal(t, back, r.URL.Path == "/bulk", "%s: in the background", r.URL.Path)
					time.Sleep(time.Second)
				}))
				var all sync.WaitGroup
				for _, path := range []string{"/first", "/bulk", "/bulk", "/last", "/last"} {
					all.Go(func() {
						answers(t, get(h, func(r *http.Request) { r.URL.Path = path }), http.StatusOK)
					})
					synctest.Wait()
				}
				all.Wait()
				gatetest.Equal(t, strings.Join(order, " "), "/first /last /last /bulk /bulk", "order")
			})
		})
	}
}

// A request is delayed until its rules have room, up to MaxDelay.
func TestMaxDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *semaphore.Semaphore
		defer func() {
			gatetest.Worked(t, s.Gate().Close(t.Context()))
		}()
		g := counted(t, func(cfg *nethttp.Config) {
			cfg.MaxDelay = 2 * time.Second
			cfg.Rules[0].Policy = policy(t, core.PolicyConfig{Name: "p", Algorithm: core.TokenBucket{Rate: 1, Per: time.Second, Burst: 1}})
			s = newSemaphore(t, cfg.Gate, semaphore.Config{})
			cfg.Slot = &nethttp.Slot{Semaphore: s, Caps: []nethttp.Cap{{Key: keyfunc.RemoteIP(), Limit: 1}}}
		})
		h := g.Handler(http.HandlerFunc(ok))
		start := time.Now()
		statuses := make(chan int, 10)
		for i, gone := range []bool{false, true, false, false} {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				r := get(h, func(r *http.Request) { *r = *r.WithContext(ctx) })
				if want := []time.Duration{0, 0, 2 * time.Second, 0}[i]; r.StatusCode == 200 && time.Since(start) != want {
					t.Errorf("request %d after %v, want %v", i, time.Since(start), want)
				}
				statuses <- r.StatusCode
			}()
			synctest.Wait()
			if gone {
				defer cancel()
				go func() {
					time.Sleep(500 * time.Millisecond)
					cancel()
				}()
			}
		}
		for _, want := range []int{200, 429, 503, 200} {
			gatetest.Equal(t, <-statuses, want, "status")
		}
		// The slot is taken after the delay, and a request that finds none is not charged.
		time.Sleep(time.Minute)
		key := core.Must(core.NewKey("192.0.2.1"))
		held := gatetest.Must(s.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{{Key: key, Limit: 1}}}))(t)
		if r := get(h); r.StatusCode != 429 || !strings.Contains(body(t, r), "concurrent") || r.Header.Get("RateLimit") != `"p";r=1` {
			t.Errorf("status %d, RateLimit %s", r.StatusCode, r.Header.Get("RateLimit"))
		}
		gatetest.Worked(t, held.Release(t.Context()))
		start = time.Now()
		if r := get(h); r.StatusCode != 200 || time.Since(start) != 0 {
			t.Errorf("status %d after %v", r.StatusCode, time.Since(start))
		}
	})
}

// Observe is given an event with the request and the outcome, in the request's context. It is told of no
// request that the Guard skips.
func TestObserveReceivesAdmissionEvents(t *testing.T) {
	var events []string
	g := counted(t, func(cfg *nethttp.Config) {
		cfg.Rules[0].Policy = policy(t, core.PolicyConfig{Name: "p", Algorithm: core.TokenBucket{Burst: 1}})
		cfg.Skip = func(r *http.Request) bool { return r.Method == http.MethodTrace }
		cfg.Observe = func(ctx context.Context, e core.Event) {
			a := e.(*nethttp.AdmissionEvent)
			gatetest.Equal(t, a.Request.Context(), ctx, "another context")
			events = append(events, fmt.Sprint(e.EventName(), " ", a.Admission.Status()))
		}
	})
	skipped := func(r *http.Request) { r.Method = http.MethodTrace }
	for range 2 {
		get(g.Handler(http.HandlerFunc(ok)))
		get(g.Handler(http.HandlerFunc(ok)), skipped)
	}
	gatetest.Equal(t, strings.Join(events, ", "), "admit 0, admit 429", "events")
}

func tenantOf(r *http.Request) (string, error) {
	if name := r.Header.Get("Tenant"); name != "" {
		return name, nil
	}
	return "", keyfunc.ErrNoKey
}

// askAs returns the response to a request of a tenant for a route.
func askAs(h http.Handler, name, route string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
	r.Header.Set("Tenant", name)
	r.Pattern = route
	h.ServeHTTP(w, r)
	return w
}

// With Concurrency the request above the cap is refused, and with Queue it waits for a slot.
func TestConcurrencyInOneLine(t *testing.T) {
	for name, c := range map[string]struct {
		maxWait time.Duration
		want    int
	}{"at once": {0, http.StatusTooManyRequests}, "queue": {time.Minute, http.StatusOK}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := core.Must(core.NewMemory(core.Config{}))
				defer func() { _ = gate.Close(context.Background()) }()
				guard, err := nethttp.Queue(gate, "streams", 1, tenantOf, c.maxWait)
				if c.maxWait == 0 {
					guard, err = nethttp.Concurrency(gate, "streams", 1, tenantOf)
				}
				gatetest.NoError(t, err)
				h := guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if r.Pattern == "/slow" {
						time.Sleep(time.Second) // in the bubble's clock
					}
				}))
				go askAs(h, "a", "/slow")
				synctest.Wait()
				gatetest.Equal(t, askAs(h, "b", "/").Code, http.StatusOK, "another key")
				gatetest.Equal(t, askAs(h, "a", "/").Code, c.want, "the same key")
			})
		})
	}
}

// Quotas makes a rule of each limit of the plans and a cap of each cap, by routes.
func TestQuotasOfPlans(t *testing.T) {
	t.Parallel()
	set := gatetest.Must(plans.ParseSet([]byte(`
default: free
plans:
  free:
    limits: {month: {limit: 3, calendar: month, in: UTC}, reports: {limit: 1, calendar: month, in: UTC}}
    caps: {streams: 1}
  pro: {limits: {month: unlimited, reports: deny}, caps: {streams: 2}}
routes: {reports: [/reports]}
`)))(t)
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		gate := gatetest.Redis(t, s.Client(t), core.Config{Prefix: s.Prefix})
		book := core.Must(plans.New(plans.Config{Set: set, Resolve: func(_ context.Context, tenant string) (string, error) {
			return map[string]string{"acme": "pro"}[tenant], nil
		}}))
		defer book.Close()
		guard := gatetest.Must(nethttp.Quotas(gate, book, tenantOf))(t)
		second := guard.Handler(http.NotFoundHandler())
		h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Pattern == "/nested" {
				second.ServeHTTP(w, r)
			}
		}))
		for i, c := range []struct {
			tenant, route string
			status        int
			policies      string
		}{
			{"umbrella", "GET /reports", 200, "month reports streams"},
			{"umbrella", "GET /reports", 429, "month reports streams"},
			{"umbrella", "/", 200, "month streams"},
			{"umbrella", "/", 200, "month streams"},
			{"umbrella", "/", 429, "month streams"},
			{"acme", "/", 200, "streams"},
			{"acme", "/reports", 403, "reports streams"},
			{"", "/", 400, ""},
		} {
			w := askAs(h, c.tenant, c.route)
			if got := namesIn(w.Header()); w.Code != c.status || got != c.policies {
				t.Errorf("request %d of %s for %s: %d with %s, want %d with %s", i, c.tenant, c.route, w.Code, got, c.status, c.policies)
			}
		}
		for tenant, status := range map[string]int{"initech": http.StatusTooManyRequests, "acme": http.StatusNotFound} {
			gatetest.Equal(t, askAs(h, tenant, "/nested").Code, status, "a second request of %s at a time", tenant)
		}
	})
}

// A fault is told with the name of the constructor.
func TestShortConstructorsTellFaults(t *testing.T) {
	t.Parallel()
	gate := core.Must(core.NewMemory(core.Config{}))
	lacking := core.Must(plans.NewSet(plans.SetConfig{Default: "a", Plans: map[string]plans.Plan{
		"a": {}, "b": {Limits: map[string]core.Algorithm{"x": core.DenyAll{}}},
	}}))
	for want, make := range map[string]func() (*nethttp.Guard, error){
		"nethttp: Concurrency: ":                        func() (*nethttp.Guard, error) { return nethttp.Concurrency(gate, "a b", 1, tenantOf) },
		"nethttp: Concurrency: nethttp: Config.Slot.Ma": func() (*nethttp.Guard, error) { return nethttp.Queue(gate, "a", 1, tenantOf, -1) },
		"nethttp: Quotas: plans: plans.a.limits": func() (*nethttp.Guard, error) {
			return nethttp.Quotas(gate, core.Must(plans.New(plans.Config{Set: lacking})), tenantOf)
		},
	} {
		if _, err := make(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
