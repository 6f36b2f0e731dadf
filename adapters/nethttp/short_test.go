package nethttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/plans"
)

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
				if err != nil {
					t.Fatal(err)
				}
				h := guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if r.Pattern == "/slow" {
						time.Sleep(time.Second) // in the bubble's clock
					}
				}))
				go askAs(h, "a", "/slow")
				synctest.Wait()
				if w := askAs(h, "b", "/"); w.Code != http.StatusOK {
					t.Errorf("another key: %d", w.Code)
				}
				if w := askAs(h, "a", "/"); w.Code != c.want {
					t.Errorf("the same key: %d, want %d", w.Code, c.want)
				}
			})
		})
	}
}

// Quotas makes a rule of each limit of the plans and a cap of each cap, by routes.
func TestQuotasOfPlans(t *testing.T) {
	t.Parallel()
	set, err := plans.ParseSet([]byte(`
default: free
plans:
  free:
    limits: {month: {limit: 3, calendar: month, in: UTC}, reports: {limit: 1, calendar: month, in: UTC}}
    caps: {streams: 1}
  pro: {limits: {month: unlimited, reports: deny}, caps: {streams: 2}}
routes: {reports: [/reports]}
`))
	if err != nil {
		t.Fatal(err)
	}
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
			{"umbrella", "GET /reports", 200, `"month", "reports", "streams"`},
			{"umbrella", "GET /reports", 429, `"month", "reports", "streams"`},
			{"umbrella", "/", 200, `"month", "streams"`},
			{"umbrella", "/", 200, `"month", "streams"`},
			{"umbrella", "/", 429, `"month", "streams"`},
			{"acme", "/", 200, `"streams"`},
			{"acme", "/reports", 403, `"reports", "streams"`},
			{"", "/", 400, ""},
		} {
			w := askAs(h, c.tenant, c.route)
			var names []string
			for _, member := range strings.Split(w.Header().Get("RateLimit-Policy"), ", ") {
				name, _, _ := strings.Cut(member, ";")
				names = append(names, name)
			}
			if got := strings.Join(names, ", "); w.Code != c.status || got != c.policies {
				t.Errorf("request %d of %s for %s: %d with %s, want %d with %s", i, c.tenant, c.route, w.Code, got, c.status, c.policies)
			}
		}
		for tenant, status := range map[string]int{"initech": http.StatusTooManyRequests, "acme": http.StatusNotFound} {
			if w := askAs(h, tenant, "/nested"); w.Code != status {
				t.Errorf("a second request of %s at a time: %d, want %d", tenant, w.Code, status)
			}
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
